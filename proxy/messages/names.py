"""Names in requests: topics, groups, tags, keys. An illegal name is refused with its code."""

import re
from typing import Any

from ...protocol.names import DLQ_PREFIX, NAMESPACE_SEPARATOR, RETRY_PREFIX, is_system_topic
from .status import Code, StatusError

TOPIC_CHARS_MAX = 127
GROUP_CHARS_MAX = 255
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SHOWN_CHARS_MAX = 200

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def topic_of(resource: Any) -> str:
    """The topic that a Resource names; StatusError ILLEGAL_TOPIC."""
    name: str = resource.name
    why = _fault("topic", name, TOPIC_CHARS_MAX)
    if why is None and is_system_topic(name):
        why = "cannot access system topic"
    if why is not None:
        raise StatusError(Code.ILLEGAL_TOPIC, why)
    return name


def joined(resource: Any) -> str | None:
    """The topic of a Resource that has a namespace apart from its name; None without one."""
    if not resource.resource_namespace:
        return None
    name = f"{resource.resource_namespace}{NAMESPACE_SEPARATOR}{resource.name}"
    return name if _fault("topic", name, TOPIC_CHARS_MAX) is None else None


def parted(topic: str) -> tuple[str, str]:
    """Namespace ("" without one) and name of a topic."""
    namespace, _, name = topic.partition(NAMESPACE_SEPARATOR)
    if namespace and name and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return namespace, name
    return "", topic


def group_of(resource: Any) -> str:
    """The group that a Resource names; StatusError ILLEGAL_CONSUMER_GROUP."""
    name: str = resource.name
    why = _fault("group", name, GROUP_CHARS_MAX)
    if why is None and name.startswith(SYSTEM_GROUP_PREFIX):
        why = "cannot use system consumer group"
    if why is not None:
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, why)
    return name


def check_text(what: str, text: str, code: int, forbidden: str = "") -> None:
    """StatusError (`code`) for a blank text, a control character or a forbidden one."""
    if text and not text.strip():
        raise StatusError(code, f"{what} cannot be the char sequence of whitespace")
    if forbidden and forbidden in text:
        raise StatusError(code, f"{what} cannot contain '{forbidden}'")
    if has_control(text):
        raise StatusError(code, f"{what} cannot contain control character")


def has_control(text: str) -> bool:
    """True if a text has a control character of ISO 8859."""
    return _CONTROL.search(text) is not None


def _fault(what: str, name: str, limit: int) -> str | None:
    if not name or not name.strip():
        return f"The specified {what} is blank"
    if len(name) > limit:
        return (
            f"The specified {what} is longer than {what} max length {limit}: it has {len(name)} "
            "characters"
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"The specified {what}[{name[:SHOWN_CHARS_MAX]}] contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    return None
