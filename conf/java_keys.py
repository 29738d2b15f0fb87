"""The keys that a Java broker knows and this one takes without doing anything: `java_keys.toml`."""

import tomllib
from pathlib import Path

NULL = "null"  # the section of keys whose default is null, with their types

# Of AuthConfig, too, but with an effect here: a broker's settings declare them.
_USED_AUTH_KEYS = {
    "authenticationEnabled",
    "authenticationMetadataProvider",
    "authenticationWhitelist",
    "authorizationEnabled",
    "authorizationMetadataProvider",
    "authorizationWhitelist",
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
}

_CLASSES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

# Key to Java type (String, boolean, int, long, double) and default.
JAVA_KEYS: dict[str, tuple[str, str | None]] = {
    key: (text, None) if kind == NULL else (kind, text)
    for sections in _CLASSES.values()
    for kind, section in sections.items()
    for key, text in section.items()
}
AUTH_KEYS = _USED_AUTH_KEYS.union(*_CLASSES["AuthConfig"].values())
