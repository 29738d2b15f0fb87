"""The sources of settings: a file, the environment, the command line. All of them are texts here.

A file is a RocketMQ properties file (`broker.conf` as users have it) or, by its ending .yaml, .yml
or .json, YAML with the same key names, one scalar a key (JSON is YAML, too). YAML is read for
its texts only: `04` stays `04` and `on` stays `on`, and no object of any kind is created.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from ..protocol.codec import java_properties

FILE_BYTES_MAX = 1 << 20
ENVIRONMENT_PREFIX = "AEROBEE_"
# Of the commands that are clients: no settings of a daemon, which must not keep or show them.
CLIENT_VARIABLES = frozenset(
    {
        "AEROBEE_ACCESS_KEY",
        "AEROBEE_SECRET_KEY",
        "AEROBEE_TLS",
        "AEROBEE_TLS_CA",
        "AEROBEE_TLS_INSECURE",
    }
)


class ConfigError(ValueError):
    """A setting that can't be taken, in one sentence: key, value, limit, what to do."""


class Setting(NamedTuple):
    """One key with its text; `source` says where it stands, for messages."""

    key: str
    text: str
    source: str


def from_file(path: Path) -> list[Setting]:
    """The settings of a file in its order; ConfigError when it can't be read."""
    text = _text_of(path)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return _from_yaml(text, path)
    try:
        pairs = java_properties.parse(text)
    except ValueError as wrong:
        raise ConfigError(f"{path}: {wrong}; correct it") from None
    return [Setting(key, value.strip(), str(path)) for key, value in pairs.items()]


def from_environment(environ: Mapping[str, str], keys: Iterable[str]) -> list[Setting]:
    """The variables AEROBEE_<KEY>, the key in capitals with or without underscores between its
    words: AEROBEE_LISTEN_PORT or AEROBEE_LISTENPORT for listenPort. Empty ones count as not set."""
    known = {key.lower(): key for key in keys}
    found = []
    for name in sorted(environ.keys() - CLIENT_VARIABLES):
        if name.startswith(ENVIRONMENT_PREFIX) and environ[name]:
            bare = name[len(ENVIRONMENT_PREFIX) :].replace("_", "").lower()
            source = f"environment variable {name}"
            found.append(Setting(known.get(bare, bare), environ[name].strip(), source))
    return found


def from_options(options: Iterable[str]) -> list[Setting]:
    """The `key=value` texts of --set; ConfigError for one without `=`."""
    found = []
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {option!r} has no key and value; write --set key=value")
        found.append(Setting(key.strip(), value.strip(), "--set"))
    return found


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as wrong:
        reason = wrong.strerror or str(wrong)
        raise ConfigError(f"the config file {path} can't be read: {reason}; name another") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(
            f"the config file {path} is larger than {FILE_BYTES_MAX} bytes; is it the right file?"
        )
    if b"\0" in data:
        raise ConfigError(f"the config file {path} is no text; is it the right file?")
    try:
        return data.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError:
        return data.decode("latin-1")  # what java.util.Properties reads


def _from_yaml(text: str, path: Path) -> list[Setting]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as wrong:
        problem = " ".join(str(wrong).split())
        raise ConfigError(f"the config file {path} is not YAML: {problem}; correct it") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"the config file {path} holds no keys; write lines of `key: value`")
    found = []
    for key, value in root.value:
        line = value.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            name = key.value if isinstance(key, yaml.ScalarNode) else "a key"
            raise ConfigError(
                f"{name} at line {line} of {path} is a list or a mapping; give it one plain value"
            )
        if value.tag != "tag:yaml.org,2002:null":
            found.append(Setting(key.value, value.value.strip(), f"{path} line {line}"))
    return found
