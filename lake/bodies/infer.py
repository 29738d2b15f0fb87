"""Finds columns of JSON bodies by looking at the newest messages of a topic, once."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from ...client.base.words import counted
from ..errors import LakeError
from ..rows.columns import BY_NAME
from ..rows.ranges import QueueRange
from ..topic_log import Source
from .decoder import BodyDecoder
from .fields import FIELDS_MAX, PREFIX, Field, Kind, SchemaError, ddl, parse

MESSAGES_MAX = 1_000
NAMES_MAX = 3_000  # of fields of one object that are looked at
SHOWN = 10  # fields that are left out
BODIES_AT_ONCE = 100
_TAKEN = {name.lower() for name in BY_NAME}
_NOTHING = Kind("nothing")  # of null
_MIXED = "mixed"  # the name of a type for values of several types, its fields; no column has it
_NESTED = ("array", "struct")
_NUMBERS = {"bigint", "double"}


@dataclass(frozen=True, slots=True)
class Inferred:
    """The columns of `bodies` bodies, of which `fit` fit them. `left_out` has the fields that are
    no column, and why."""

    fields: tuple[Field, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    bodies: int = 0
    fit: int = 0

    def told(self) -> list[str]:
        """Lines for people: what is left out, and how many bodies fit."""
        lines = [f"left out: {name}: {why}" for name, why in self.left_out[:SHOWN]]
        if len(self.left_out) > SHOWN:
            more = counted(len(self.left_out) - SHOWN, "more field", "more fields")
            lines.append(f"left out: {more}")
        of = counted(self.bodies, "newest body", "newest bodies")
        others = "" if self.fit == self.bodies else "; the others would be dead letters"
        return [*lines, f"{self.fit:,} of the {of} fit{others}"]


def infer(source: Source, topic: str) -> Inferred:
    """The columns of up to 1,000 newest messages. LakeError when no body has one."""
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
    found = inferred(bodies)
    if not found.fields:
        raise LakeError(
            f"none of the {len(bodies)} newest bodies of topic {topic} is a JSON object with a "
            "field of one type; declare the columns"
        )
    return found


def inferred(bodies: Sequence[bytes]) -> Inferred:
    """The columns that bodies have in common. Fields without a value, or with values of several
    types, are left out; bodies that are no JSON objects don't count."""
    merged = Kind("struct")
    for body in bodies:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = msgspec.json.decode(body)
            if isinstance(value, dict):
                merged = _merged(merged, _kind(value))
    left_out: list[tuple[str, str]] = []
    if len(merged.fields) == NAMES_MAX:
        left_out.append(("others", f"only the first {NAMES_MAX:,} names were looked at"))
    found: dict[str, Field] = {}
    count = 0
    for each in merged.fields:
        kind = _complete(each.kind, each.name, left_out)
        if kind is None:
            continue
        name = PREFIX + each.name if each.name.lower() in _TAKEN else each.name
        column, more = Field(name, kind), _count(kind)
        why = _fault(column, each.name, found)
        if not why and count + more > FIELDS_MAX:
            why = f"the columns would have more than {FIELDS_MAX:,} fields, with those inside"
        if why:
            left_out.append((each.name, why))
            continue
        found[name.lower()] = column
        count += more
    fields = tuple(found.values())
    return Inferred(fields, tuple(left_out), len(bodies), _fitting(fields, bodies))


def _fault(column: Field, name: str, others: dict[str, Field]) -> str:
    """Why the field `name` of bodies can't have this column beside others; empty if it can."""
    if column.in_body != name:
        return f"the column {column.name} is for the field {column.in_body}"
    if column.name.lower() in others:
        return f"its name differs from {others[column.name.lower()].in_body} in case alone"
    try:
        parse(ddl([column]))
    except SchemaError as wrong:
        return wrong.why
    return ""


def _fitting(fields: tuple[Field, ...], bodies: Sequence[bytes]) -> int:
    """How many bodies fit."""
    decoder = BodyDecoder(fields)
    count = 0
    for at in range(0, len(bodies), BODIES_AT_ONCE):
        values = pa.array(bodies[at : at + BODIES_AT_ONCE], pa.binary())
        count += decoder.split(pa.record_batch([values], ["value"]))[0].num_rows
    return count


def _count(kind: Kind) -> int:
    """How many fields a column of this type has, with itself."""
    return 1 + sum(_count(each.kind) for each in kind.fields)


def _kind(value: Any) -> Kind:
    """The type of a value."""
    match value:
        case None:
            return _NOTHING
        case bool():
            return Kind("boolean")
        case int():
            return Kind("bigint") if -(1 << 63) <= value < 1 << 63 else Kind("double")
        case float():
            return Kind("double")
        case str():
            return Kind("timestamp" if _is_time(value) else "string")
        case list():
            inner = _NOTHING
            for each in value:
                inner = _merged(inner, _kind(each))
            return Kind("array", (Field("element", inner),))
    return Kind("struct", tuple(Field(name, _kind(each)) for name, each in value.items()))


def _is_time(text: str) -> bool:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(text, datetime).tzinfo is not None
    return False


def _merged(one: Kind, other: Kind) -> Kind:
    """The type that has the values of both."""
    if one == other or other == _NOTHING:
        return one
    if one == _NOTHING:
        return other
    names = {one.name, other.name}
    if names == _NUMBERS:
        return Kind("double")
    if names == {"string", "timestamp"}:
        return Kind("string")
    if len(names) > 1 or one.name not in _NESTED:
        both = (_several(one), _several(other))
        return Kind(_MIXED, tuple({each.name: each for kinds in both for each in kinds}.values()))
    fields = {each.name: each.kind for each in one.fields}
    for each in other.fields:
        if each.name in fields or len(fields) < NAMES_MAX:
            fields[each.name] = _merged(fields.get(each.name, _NOTHING), each.kind)
    return Kind(one.name, tuple(Field(name, kind) for name, kind in fields.items()))


def _several(kind: Kind) -> tuple[Field, ...]:
    """The types of a mixed one, each a field of its name; of another one itself."""
    return kind.fields if kind.name == _MIXED else (Field(kind.name, Kind(kind.name)),)


def _complete(kind: Kind, place: str, left_out: list[tuple[str, str]]) -> Kind | None:
    """The type without what no column can have, which is appended to `left_out`; None when nothing
    is left."""
    if kind.name == _MIXED:
        types = ", ".join(sorted(each.name for each in kind.fields))
        left_out.append((place, f"its values have several types: {types}"))
        return None
    if kind == _NOTHING or (kind.name in _NESTED and not kind.fields):
        left_out.append((place, "it never has a value"))
        return None
    if kind.name not in _NESTED:
        return kind
    fields = []
    for each in kind.fields:
        inside = f"{place}[]" if kind.name == "array" else f"{place}.{each.name}"
        if (inner := _complete(each.kind, inside, left_out)) is not None:
            fields.append(Field(each.name, inner))
    return Kind(kind.name, tuple(fields)) if fields else None
