"""Decodes JSON bodies into columns; a body that doesn't fit is a dead letter with its reason.

What fits depends on the body and the declared columns alone. A body is one JSON object in UTF-8.
null and an absent field are null, fields that are not declared are left out, and of a key that is
there twice the last value counts; each of them must fit. Nothing is converted but a whole number to
a double: 1.0 and "1" are no bigint. A timestamp is a text of RFC 3339 with a zone, rounded to µs.
"""

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from ..table_schema import REASON
from .fields import Field, Kind, ddl, schema_of

Check = Callable[[Any, str], None]  # of a value, with its place
DEPTH_MAX = 100  # of a body: arrays and objects within each other
REASON_MAX = 200  # characters

_PYTHON: dict[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)],
    "bigint": Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    "double": float,
    "string": str,
    "date": datetime.date,
    "timestamp": Annotated[datetime.datetime, Meta(tz=True)],
}
_NESTING = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)


class BodyDecoder:
    """Decodes bodies by declared columns."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self.schema = schema_of(fields)
        names = [f"f{number}" for number in range(len(fields))]
        body = msgspec.defstruct(
            "Body",
            [
                (name, _python(each.kind) | None, None)
                for name, each in zip(names, fields, strict=True)
            ],
            rename={name: each.in_body for name, each in zip(names, fields, strict=True)},
            gc=False,
        )
        self._decode = msgspec.json.Decoder(body).decode
        self._checks = [
            (name, f"$.{each.in_body}", check)
            for name, each in zip(names, fields, strict=True)
            if (check := _time_check(each.kind)) is not None
        ]

    def split(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows whose `value` fits, with the declared columns behind; and the others, with the
        reason."""
        values = rows.column("value")
        bodies = values.to_pylist()
        found: list[Any] = []
        faults = _faults(values, bodies)
        decode = self._decode
        for number, body in enumerate(bodies):
            if number in faults:
                continue
            try:
                decoded = decode(body)
                for name, shown, check in self._checks:
                    check(getattr(decoded, name), shown)
            except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
                faults[number] = _reason(wrong)
            else:
                found.append(decoded)
        dead = rows.slice(0, 0)
        if faults:
            numbers = sorted(faults)
            is_dead = pa.array([number in faults for number in range(len(bodies))])
            dead, rows = rows.filter(is_dead), rows.filter(pc.invert(is_dead))
            reasons = pa.array([faults[number] for number in numbers], pa.string())
        else:
            reasons = pa.array([], pa.string())
        columns = zip(*map(msgspec.structs.astuple, found), strict=True) if found else ()
        values_by_name = dict(zip(self.schema.names, columns, strict=False))
        for field in self.schema:
            rows = rows.append_column(
                field, pa.array(values_by_name.get(field.name, ()), field.type)
            )
        return rows, dead.append_column(REASON, reasons)


@dataclass(frozen=True, slots=True)
class Decoding:
    """Gives messages the columns of JSON, and leaves out those that don't fit. With `is_dead` it
    leaves out those that do, and gives the others their reasons. Can be pickled."""

    fields: tuple[Field, ...] = ()
    is_dead: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns behind those of a message, in Arrow."""
        if self.is_dead:
            return pa.schema([pa.field(REASON, pa.string())])
        return schema_of(self.fields)

    @property
    def ddl(self) -> str:
        """The same columns as a DDL."""
        return f"{REASON} string" if self.is_dead else ddl(self.fields)

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches that have `value`, with these columns behind."""
        if not self.fields:
            yield from batches
            return
        decoder = BodyDecoder(self.fields)
        for batch in batches:
            yield decoder.split(batch)[self.is_dead]


def _python(kind: Kind) -> Any:
    """The type that msgspec decodes to. Objects within a body become dictionaries."""
    if kind.name == "array":
        return list[_python(kind.fields[0].kind) | None]  # type: ignore[misc]
    if kind.name == "struct":
        inner = {each.name: _python(each.kind) | None for each in kind.fields}
        return TypedDict("Object", inner, total=False)  # type: ignore[operator]
    return _PYTHON[kind.name]


def _time_check(kind: Kind) -> Check | None:
    """A check that the timestamps in a value have a year from 1 to 9999 in UTC, None where a type
    has none: a zone moves them, and who reads the rows could not show them. ValidationError."""
    if kind.name == "timestamp":
        return _check_time
    inner = [(each.name, check) for each in kind.fields if (check := _time_check(each.kind))]
    if not inner:
        return None

    def check_all(value: Any, shown: str) -> None:
        for each in value or () if kind.name == "array" else ():
            inner[0][1](each, f"{shown}[...]")
        for name, check in () if kind.name == "array" or value is None else inner:
            check(value.get(name), f"{shown}.{name}")

    return check_all


def _check_time(value: datetime.datetime | None, shown: str) -> None:
    if value is not None and value.year in (datetime.MINYEAR, datetime.MAXYEAR):
        try:
            value.astimezone(datetime.UTC)
        except OverflowError:
            raise msgspec.ValidationError(
                f"Expected a year from 1 to 9999 in UTC - at `{shown}`"
            ) from None


def _faults(values: pa.Array, bodies: list[bytes]) -> dict[int, str]:
    """Why bodies are none, by their number: what the decoder looks over, or can't bear."""
    found = {}
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        for number, body in enumerate(bodies):
            try:
                body.decode()
            except UnicodeDecodeError as wrong:
                found[number] = f"the body is no UTF-8 at byte {wrong.start}"
    opened = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    for number in pc.indices_nonzero(pc.greater(opened, DEPTH_MAX)).to_pylist():
        if number not in found and _is_deep(bodies[number]):
            found[number] = f"the body is nested more than {DEPTH_MAX} deep"
    return found


def _is_deep(body: bytes) -> bool:
    depth, in_text = 0, False
    for match in _NESTING.finditer(body):
        sign = match[0]
        if sign == b'"':
            in_text = not in_text
        elif not in_text and len(sign) == 1:
            depth += 1 if sign in b"[{" else -1
            if depth > DEPTH_MAX:
                return True
    return False


def _reason(wrong: Exception) -> str:
    text = str(wrong).removesuffix(".")
    if isinstance(wrong, msgspec.ValidationError):
        return text.replace(" | null`", "`").replace("`$`", "the body")[:REASON_MAX]
    return f"the body is no JSON: {text}"[:REASON_MAX]
