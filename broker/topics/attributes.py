"""The attributes of a topic: which there are, and how a request changes them.

A change is a map whose keys say what to do: `+name` sets the value, `-name` takes the attribute
away. As text it is `+message.type=FIFO,-reserve.time`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...store.base.retention import TopicRule

INT64_MAX = (1 << 63) - 1


class Attribute(NamedTuple):
    """The legal values, in words and as a test, and whether a topic may change its value later."""

    values: str
    allows: Callable[[str], bool]
    changeable: bool = True


def _one_of(*values: str, changeable: bool = True) -> Attribute:
    return Attribute("one of " + ", ".join(values), values.__contains__, changeable)


def _is_reserve_time(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and -1 <= int(text) <= INT64_MAX


def _is_limit(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and 1 <= int(text) <= INT64_MAX


QUEUE_TYPE = "queue.type"
BATCH_QUEUES = "BatchCQ"
CLEANUP_POLICY = "cleanup.policy"
COMPACTION = "COMPACTION"
# Kafka's names. RocketMQ's reserve.time has no unit there, and is of its tiered storage alone.
KEEP_MS = "retention.ms"
KEEP_BYTES = "retention.bytes"
ATTRIBUTES = {
    QUEUE_TYPE: _one_of("SimpleCQ", BATCH_QUEUES, changeable=False),
    CLEANUP_POLICY: _one_of("DELETE", COMPACTION, changeable=False),
    "message.type": _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
    "reserve.time": Attribute(f"a whole number from -1 to {INT64_MAX}", _is_reserve_time),
    KEEP_MS: Attribute(f"a whole number of ms from 1 to {INT64_MAX}", _is_limit),
    KEEP_BYTES: Attribute(f"a whole number of bytes from 1 to {INT64_MAX}", _is_limit),
}
MESSAGE_TYPE = "message.type"
MIXED = "MIXED"


def parse_change(text: str | None) -> dict[str, str]:
    """The change that a text asks for; ValueError naming the part that is wrong."""
    change: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if equals and not key.startswith("+"):
            raise ValueError(f"add/alter attribute format is wrong: {key}; write +{key}={value}")
        if not equals and not key.startswith("-"):
            raise ValueError(f"delete attribute format is wrong: {key}; write -{key}")
        if key in change:
            raise ValueError(f"key duplication: {key}; name each attribute once")
        change[key] = value
    return change


def changed(current: dict[str, str] | None, change: dict[str, str]) -> dict[str, str]:
    """The attributes after a change; `current` is None for a new topic. ValueError as above."""
    found = dict(current or {})
    for key, value in change.items():
        sign, name = key[:1], key[1:]
        if sign not in ("+", "-") or "+" in name or "-" in name or not name:
            raise ValueError(f"wrong format key: {key}; write +name=value or -name")
        if f"{'-' if sign == '+' else '+'}{name}" in change:
            raise ValueError(f"alter duplication key. key: {name}; name each attribute once")
        if sign == "-" and current is None:
            raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            known = ", ".join(ATTRIBUTES)
            raise ValueError(f"unsupported key: {name}; there are {known}")
        if current is not None and not attribute.changeable:
            raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            if name not in found:
                raise ValueError(f"attempt to delete a nonexistent key: {name}")
            del found[name]
        elif attribute.allows(value):
            found[name] = value
        else:
            raise ValueError(f"attribute {name} is {value!r}, but must be {attribute.values}")
    if found.get(QUEUE_TYPE) == BATCH_QUEUES and (KEEP_MS in found or KEEP_BYTES in found):
        raise ValueError(
            f"{KEEP_MS} and {KEEP_BYTES} are for topics with {QUEUE_TYPE} SimpleCQ; a topic with "
            f"{BATCH_QUEUES} keeps messages as long as the broker does (fileReservedTime)"
        )
    return found


def rule_of(attributes: Mapping[str, str] | None) -> TopicRule | None:
    """The retention that a topic has by its attributes; None for the broker's.

    A value that can't be, which another program may have written, counts as none.
    """
    if not attributes or attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
        return None
    keep_ms, keep_bytes = (
        int(text) if _is_limit(text := attributes.get(name, "")) else None
        for name in (KEEP_MS, KEEP_BYTES)
    )
    return None if keep_ms is keep_bytes is None else TopicRule(keep_ms, keep_bytes)
