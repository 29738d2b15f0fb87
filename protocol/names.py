"""Names of topics and groups: what is legal, what belongs to the system.

A name is checked before anything else is done with it: it becomes a folder of the store.
"""

import re

from . import codes
from .errors import Refusal

TOPIC_CHARS_MAX = 127
GROUP_CHARS_MAX = 120
CLIENT_ID_CHARS_MAX = 512
STORED_TOPIC_CHARS_MAX = 255  # of retry and dead letter topics, which carry a group's name

# A field of a heartbeat's response: this broker keeps the clients behind a proxy apart.
PROXIED = "aerobeeProxied"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"  # behind the name of a cluster
LMQ_PREFIX = "%LMQ%"
NAMESPACE_SEPARATOR = "%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
SEND_FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SPARK_GROUP = "aerobee-spark"  # of Spark queries that name none
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(name: str) -> None:
    """Refusal (INVALID_PARAMETER) when this can't be the name of a topic in a request."""
    limit = TOPIC_CHARS_MAX
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        limit = STORED_TOPIC_CHARS_MAX
    _check("topic", name, limit)


def check_group(name: str) -> None:
    """Refusal (INVALID_PARAMETER) when this can't be the name of a group."""
    _check("group", name, GROUP_CHARS_MAX)


def check_sendable(topic: str) -> None:
    """Refusal (NO_PERMISSION) when no client may send to this topic."""
    if topic in SEND_FORBIDDEN_TOPICS:
        raise Refusal(
            codes.NO_PERMISSION,
            f"Sending message to topic[{topic}] is forbidden. It is the broker's own; choose "
            "another",
        )


def check_client_id(name: str) -> None:
    """Refusal (SYSTEM_ERROR) when the id of a client is too long to be kept."""
    if len(name) > CLIENT_ID_CHARS_MAX:
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"the client's id has {len(name)} characters, the limit is {CLIENT_ID_CHARS_MAX}; give "
            "it a shorter instance name or unit name",
        )


def is_system_topic(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    return name.startswith(SYSTEM_GROUP_PREFIX)


def with_namespace(name: str, namespace: str) -> str:
    """A topic or group inside a namespace: `ns%name`, also behind %RETRY% and %DLQ%.

    System names, and names that are inside the namespace already, stay as they are.
    """
    if not namespace or not name or is_system_topic(name) or is_system_group(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + NAMESPACE_SEPARATOR):
        return name
    return f"{prefix}{namespace}{NAMESPACE_SEPARATOR}{bare}"


def without_namespace(name: str, namespace: str) -> str:
    """The name as the application knows it."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + NAMESPACE_SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _check(what: str, name: str, limit: int) -> None:
    if not name or name.isspace():
        raise Refusal(codes.INVALID_PARAMETER, f"The specified {what} is blank; give it a name.")
    if len(name) > limit:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"The specified {what} is longer than {what} max length: it has {len(name)} "
            f"characters, the limit is {limit}.",
        )
    if _LEGAL.fullmatch(name) is None:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"The specified {what}[{name[:limit]}] contains illegal characters, allowing only "
            "^[%|a-zA-Z0-9_-]+$",
        )
