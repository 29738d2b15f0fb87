"""The declared columns of JSON bodies: their DDL, and their types in Arrow and Iceberg.

    id bigint, amount double, items array<struct<sku:string,n:int>>, at timestamp

A body's field that is named as a message's column is declared with `body_` before it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from ..errors import LakeError
from ..rows.columns import BY_NAME

PREFIX = "body_"
FIELDS_MAX = 1_000  # with those inside
NAME_MAX = 100  # characters of a field's name
DEPTH_MAX = 16  # of types

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_ICEBERG: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
}
_ALIASES = {"integer": "int", "long": "bigint"}
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<sign>[<>,:])|(?P<no>\S))")


class SchemaError(LakeError):
    """A DDL that is none, and `why`."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(
            f"the schema {text[:200]!r} is none: {why}; write it as in "
            '"id bigint, amount double, items array<struct<sku:string,n:int>>, at timestamp"'
        )
        self.why = why


@dataclass(frozen=True, slots=True)
class Kind:
    """A type: its name, and the fields of a struct, or the one named `element` of an array."""

    name: str
    fields: tuple["Field", ...] = ()

    def __str__(self) -> str:
        if self.name == "array":
            return f"array<{self.fields[0].kind}>"
        if self.name == "struct":
            return f"struct<{','.join(f'{_name(each.name)}:{each.kind}' for each in self.fields)}>"
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        """The type of values in Arrow."""
        inner = [pa.field(each.name, each.kind.arrow) for each in self.fields]
        if self.name == "array":
            return pa.list_(inner[0])
        return pa.struct(inner) if self.name == "struct" else _ARROW[self.name]

    def iceberg(self, ids: Iterator[int] | None = None) -> IcebergType:
        """The type in Iceberg. Its ids of fields are only different: a table gives others."""
        ids = count(1) if ids is None else ids
        if self.name == "array":
            return ListType(next(ids), self.fields[0].kind.iceberg(ids), element_required=False)
        if self.name == "struct":
            return StructType(
                *(
                    NestedField(next(ids), each.name, each.kind.iceberg(ids), required=False)
                    for each in self.fields
                )
            )
        return _ICEBERG[self.name]


@dataclass(frozen=True, slots=True)
class Field:
    """A declared column, or a field within one."""

    name: str
    kind: Kind

    @property
    def in_body(self) -> str:
        """The name of the column's field in bodies."""
        plain = self.name.removeprefix(PREFIX)
        return plain if plain.lower() in _TAKEN else self.name


_TAKEN = {name.lower() for name in BY_NAME}


def parse(text: str) -> tuple[Field, ...]:
    """The columns of a DDL. LakeError when it is none, or names what a table can't have."""
    reader = _Reader(text)
    found = reader.fields(0, end="")
    for each in found:
        if each.name.lower() in _TAKEN:
            raise LakeError(
                f"the schema names {each.name}, which is a column of every message; write "
                f"{PREFIX}{each.name}, which has the body's field {each.name}"
            )
    return found


def ddl(fields: Iterable[Field]) -> str:
    """The fields as a DDL, which `parse` reads."""
    return ", ".join(f"{_name(each.name)} {each.kind}" for each in fields)


def schema_of(fields: Iterable[Field]) -> pa.Schema:
    """The fields as columns of Arrow."""
    return pa.schema([pa.field(each.name, each.kind.arrow) for each in fields])


def ddl_of(kind: IcebergType) -> str:
    """A type of Iceberg as a DDL spells it; its own text for one that no DDL declares."""
    if isinstance(kind, ListType):
        return f"array<{ddl_of(kind.element_type)}>"
    if isinstance(kind, StructType):
        inner = (f"{_name(each.name)}:{ddl_of(each.field_type)}" for each in kind.fields)
        return f"struct<{','.join(inner)}>"
    return next((name for name, each in _ICEBERG.items() if each == kind), str(kind))


def _name(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"`{text.replace('`', '``')}`"


class _Reader:
    """Reads a DDL, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(found.lastgroup, found[found.lastgroup or 0]) for found in _found(text)]
        self._at = 0
        self._count = 0

    def fields(self, depth: int, end: str) -> tuple[Field, ...]:
        """The fields up to the sign `end`, or to the end of the text."""
        found: list[Field] = []
        names = set[str]()
        while True:
            name = self._name()
            if name.lower() in names:
                raise self._wrong(f"the field {name} is there twice")
            names.add(name.lower())
            if self._peek() == ":":
                self._at += 1
            found.append(Field(name, self._kind(depth)))
            self._count += 1
            if self._count > FIELDS_MAX:
                raise self._wrong(f"it has more than {FIELDS_MAX} fields")
            if self._peek() != ",":
                break
            self._at += 1
        if self._peek() != end:
            raise self._wrong(f"{_shown(self._peek())} comes after {found[-1].name}")
        self._at += 1
        return tuple(found)

    def _kind(self, depth: int) -> Kind:
        if depth > DEPTH_MAX:
            raise self._wrong(f"types are nested more than {DEPTH_MAX} deep")
        word = self._peek().lower()
        self._at += 1
        if word in ("array", "struct"):
            if self._peek() != "<":
                raise self._wrong(f"{word} needs <, as in array<int> or struct<a:int>")
            self._at += 1
            if word == "struct":
                return Kind(word, self.fields(depth + 1, end=">"))
            inner = self._kind(depth + 1)
            if self._peek() != ">":
                raise self._wrong("an array is not closed by >")
            self._at += 1
            return Kind(word, (Field("element", inner),))
        kind = _ALIASES.get(word, word)
        if kind not in _ARROW:
            known = ", ".join((*_ARROW, "array<>", "struct<>"))
            raise self._wrong(f"{_shown(word)} is there instead of a type; there are {known}")
        return Kind(kind)

    def _name(self) -> str:
        group, text = self._tokens[self._at] if self._at < len(self._tokens) else (None, "")
        self._at += 1
        if group == "quoted":
            text = text[1:-1].replace("``", "`")
        elif group != "word":
            raise self._wrong(f"{_shown(text)} is there instead of a field's name")
        if len(text) > NAME_MAX or set(text) & set('."\\') or not text.isprintable():
            raise self._wrong(
                f"the name {text[:NAME_MAX]!r} is none for a column; give up to {NAME_MAX} "
                'printable characters without ., " and \\'
            )
        return text

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _wrong(self, why: str) -> SchemaError:
        return SchemaError(self._text, why)


def _shown(token: str) -> str:
    return repr(token) if token else "the end"


def _found(text: str) -> Iterator[re.Match[str]]:
    return _TOKEN.finditer(text.rstrip())
