"""Finds columns of JSON bodies by looking at the newest messages of a topic, once."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from ..errors import LakeError
from ..rows.columns import BY_NAME
from ..rows.ranges import QueueRange
from ..topic_log import Source
from .fields import FIELDS_MAX, PREFIX, Field, Kind, ddl, parse

MESSAGES_MAX = 1_000
_TAKEN = {name.lower() for name in BY_NAME}
_MIXED = Kind("mixed")  # values of several types, which no column has
_NUMBERS = {"bigint", "double"}


def infer(source: Source, topic: str) -> str:
    """The DDL of the bodies of up to 1,000 newest messages. LakeError when no body is JSON."""
    bounds, failures = source.bounds(topic)
    if failures:
        raise LakeError(f"not every queue of topic {topic} can be read: {failures[0]}")
    share = max(1, MESSAGES_MAX // max(1, len(bounds)))
    bodies: list[bytes] = []
    for queue, each in bounds.items():
        start = max(each.first, each.end - share)
        wanted = QueueRange(topic, queue.broker_name, queue.queue_id, start, each.end)
        for batch in source.rows(wanted):
            bodies += batch.column("value").to_pylist()
    found = ddl(fields_of(bodies))
    if not found:
        raise LakeError(
            f"none of the {len(bodies)} newest bodies of topic {topic} is a JSON object with a "
            "field of one type; declare the columns"
        )
    return found


def fields_of(bodies: Iterable[bytes]) -> tuple[Field, ...]:
    """The columns that bodies have in common. Fields without a value, or with values of several
    types, are left out; bodies that are no JSON objects don't count."""
    merged: Kind | None = None
    for body in bodies:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = msgspec.json.decode(body)
            if isinstance(value, dict):
                merged = _merged(merged, _kind(value))
    whole = _complete(merged)
    found: dict[str, Field] = {}
    count = 0
    for each in () if whole is None else whole.fields:
        name = PREFIX + each.name if each.name.lower() in _TAKEN else each.name
        column, more = Field(name, each.kind), _count(each.kind)
        if name.lower() in found or count + more > FIELDS_MAX:
            continue
        with suppress(LakeError):
            parse(ddl([column]))
            found[name.lower()] = column
            count += more
    return tuple(found.values())


def _count(kind: Kind) -> int:
    """How many fields a column of this type has, with itself."""
    return 1 + sum(_count(each.kind) for each in kind.fields)


def _kind(value: Any) -> Kind | None:
    """The type of a value; None of null."""
    match value:
        case None:
            return None
        case bool():
            return Kind("boolean")
        case int():
            return Kind("bigint") if -(1 << 63) <= value < 1 << 63 else Kind("double")
        case float():
            return Kind("double")
        case str():
            return Kind("timestamp" if _is_time(value) else "string")
        case list():
            inner: Kind | None = None
            for each in value:
                inner = _merged(inner, _kind(each))
            return Kind("array", () if inner is None else (Field("element", inner),))
    pairs = [(name, _kind(each)) for name, each in value.items()]
    return Kind("struct", tuple(Field(name, kind) for name, kind in pairs if kind is not None))


def _is_time(text: str) -> bool:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(text, datetime).tzinfo is not None
    return False


def _merged(one: Kind | None, other: Kind | None) -> Kind | None:
    """The type that has the values of both."""
    if one is None or other is None or one == other:
        return one or other
    names = {one.name, other.name}
    if names == _NUMBERS:
        return Kind("double")
    if names == {"string", "timestamp"}:
        return Kind("string")
    if len(names) > 1 or one.name not in ("array", "struct"):
        return _MIXED
    fields = {each.name: each.kind for each in one.fields}
    for each in other.fields:
        if each.name not in fields and len(fields) == FIELDS_MAX:
            continue
        kind = _merged(fields.get(each.name), each.kind)
        assert kind is not None
        fields[each.name] = kind
    return Kind(one.name, tuple(Field(name, kind) for name, kind in fields.items()))


def _complete(kind: Kind | None) -> Kind | None:
    """The type without fields that no column can have; None when nothing is left."""
    if kind is None or kind == _MIXED:
        return None
    if kind.name not in ("array", "struct"):
        return kind
    inner = [(each.name, _complete(each.kind)) for each in kind.fields]
    fields = tuple(Field(name, each) for name, each in inner if each is not None)
    return Kind(kind.name, fields) if fields else None
