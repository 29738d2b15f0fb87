"""Settings without effect on this broker that are kept all the same (see `dynamic.py`).

RocketMQ takes each of its keys in UPDATE_BROKER_CONFIG, and its tools and tests set keys without
looking whether they matter. Such a key is kept and shown, and has no effect. A key for a location,
a program or an identity is refused.
"""

from ...protocol import codes
from ...protocol.errors import Refusal

KEY_SHOWN_MAX = 128
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


def check(key: str, text: str) -> None:
    """Refusal when a key that has no effect may not be kept, or not with this value."""
    if key in REFUSED:
        raise refused(key)
    if len(text) > VALUE_CHARS_MAX or not text.isprintable():
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"the value of {key} has {len(text)} characters, of which at most {VALUE_CHARS_MAX} "
            "printable ones are kept; shorten it",
        )


def shown(key: str) -> str:
    """A key as it may stand in a sentence."""
    return ascii(key[:KEY_SHOWN_MAX])[1:-1]


def refused(key: str) -> Refusal:
    """For a key that is never changed over the network."""
    return Refusal(
        codes.NO_PERMISSION,
        f"Can not update config in black list. {shown(key)} may be a path, a size of files, a "
        "class, a command, an address, a name or a right, so the network can't change it. Put it "
        "into the configuration and restart",
    )
