"""Settings without effect on this broker that are kept all the same (see `dynamic.py`).

RocketMQ takes any key in UPDATE_BROKER_CONFIG, and its tools and tests set keys without looking
whether they matter. Such a key is kept and shown, and has no effect. A key for a location, a
program or an identity is refused by its name.
"""

import re
from collections.abc import Iterable

from ...conf.java_keys import JAVA_KEYS
from ...protocol import codes
from ...protocol.errors import Refusal

UNKNOWN_KEYS_MAX = 100  # that neither this broker nor RocketMQ's knows
KEY_CHARS_MAX = 128
VALUE_CHARS_MAX = 1_024

# RocketMQ's own black list, and its keys with paths, classes, addresses or names.
REFUSED = frozenset(
    {
        *("brokerConfigPath", "rocketmqHome", "configBlackList"),
        *("authConfigPath", "readOnlyCommitLogStorePaths", "storePathBrokerIdentity"),
        *("storePathDLedgerCommitLog", "storePathEpochFile"),
        *("authenticationProvider", "authenticationStrategy", "authorizationProvider"),
        *("authorizationStrategy", "messageStorePlugIn"),
        *("dLegerPeers", "socksProxyConfig", "clusterName", "configName"),
    }
)
# Unknown keys are refused by the words in them, or by parts of their names.
REFUSED_WORDS = frozenset(
    {
        *("dir", "dirs", "folder", "folders", "file", "files", "home", "root"),
        *("provider", "plugin", "plug", "factory", "strategy", "cmd", "exec", "script", "shell"),
        *("addr", "addrs", "address", "addresses", "host", "hosts", "ip", "port", "ports"),
        *("url", "uri", "endpoint", "target", "server", "servers", "token", "user", "users"),
    }
)
REFUSED_PARTS = ("path", "class", "command", "password", "secret", "credential")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def check(key: str, text: str) -> None:
    """Refusal when a key that has no effect may not be kept, or not with this value."""
    if key in REFUSED or (key not in JAVA_KEYS and _is_suspect(key)):
        raise refused(key)
    if len(key) > KEY_CHARS_MAX or _KEY.fullmatch(key) is None:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"{shown(key)} is no key: it must be at most {KEY_CHARS_MAX} letters, digits, dots, "
            "underscores and hyphens, a letter first; correct it",
        )
    if len(text) > VALUE_CHARS_MAX or not text.isprintable():
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"the value of {key} has {len(text)} characters, of which at most {VALUE_CHARS_MAX} "
            "printable ones are kept; shorten it",
        )


def check_room(keys: Iterable[str]) -> None:
    """Refusal when too many of the keys are unknown ones."""
    unknown = sum(key not in JAVA_KEYS for key in keys)
    if unknown > UNKNOWN_KEYS_MAX:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"{unknown} changed keys would be kept that RocketMQ does not know, the limit is "
            f"{UNKNOWN_KEYS_MAX}; set those that are not needed to nothing (key=)",
        )


def shown(key: str) -> str:
    """A key as it may stand in a sentence."""
    return ascii(key[:KEY_CHARS_MAX])[1:-1]


def refused(key: str) -> Refusal:
    """For a key that is never changed over the network."""
    return Refusal(
        codes.NO_PERMISSION,
        f"Can not update config in black list. {shown(key)} may be a path, a size of files, a "
        "class, a command, an address, a name or a right, so the network can't change it. Put it "
        "into the configuration and restart",
    )


def _is_suspect(key: str) -> bool:
    words = {word.lower() for word in _WORD.findall(key)}
    return bool(words & REFUSED_WORDS) or any(part in key.lower() for part in REFUSED_PARTS)
