"""Settings of the exporters of metrics and spans: pairs, and the address of a collector."""

import re
from typing import NamedTuple

from .sources import ConfigError

OTLP_PORT = 4_317
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TARGET = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?/?")


class Target(NamedTuple):
    """A collector. `address` is host:port."""

    address: str
    is_tls: bool


def pairs_of(key: str, text: str) -> list[tuple[str, str]]:
    """The pairs of `name:value,name:value`; ConfigError for another text."""
    found = []
    for item in filter(None, text.split(",")):
        name, colon, value = item.partition(":")
        is_label = LABEL.fullmatch(name) is not None
        if not colon or ":" in value or (key == "metricsLabel" and not is_label):
            raise ConfigError(
                f"{key} has a part of {len(item)} characters that is no name:value; give "
                "name:value, several with , between them, without : in a value"
            )
        found.append((name.strip(), value.strip()))
    return found


def target_of(key: str, text: str) -> Target:
    """The address of a collector that the setting `key` names, by TLS unless it begins with
    http://; ConfigError for another text."""
    found = _TARGET.fullmatch(text)
    if found is None or int(found[3] or OTLP_PORT) > 65_535:
        raise ConfigError(
            f"{key} is {text!r}; give the collector's address, such as http://127.0.0.1:4317, or "
            "https:// for TLS"
        )
    return Target(f"{found[2]}:{found[3] or OTLP_PORT}", found[1] != "http")
