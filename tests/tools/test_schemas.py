"""JSON schemas of types: each class once, what is not known as null."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import pytest
from aerobee.protocol.bodies.stats import TopicOffset
from aerobee.tools.schemas import Schemas

Row = TypeVar("Row")


class Colour(StrEnum):
    RED = "red"


@dataclass
class Point:
    x: int
    near: "list[Point]"


class Pair(NamedTuple):
    name: str
    value: float | None


class Page(TypedDict, Generic[Row]):
    rows: list[Row]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int | None, {"type": ["integer", "null"]}),
        (Any, {}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (Colour, {"type": "string", "enum": ["red"]}),
        (
            tuple[str, int],
            {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Pair | None,
            {"anyOf": [{"$ref": "#/components/schemas/Pair"}, {"type": "null"}]},
        ),
    ],
)
def test_a_type_is_a_schema(kind: Any, schema: Any) -> None:
    assert Schemas().of(kind) == schema


def test_a_class_is_described_once_with_all_of_its_fields() -> None:
    schemas = Schemas()
    schemas.of(Pair)
    schemas.of(Point)
    assert schemas.of(Page[Point]) == {"$ref": "#/components/schemas/PointPage"}
    point = {"$ref": "#/components/schemas/Point"}
    assert schemas.named == {
        "Pair": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "value": {"type": ["number", "null"]}},
            "required": ["name", "value"],
        },
        "Point": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "near": {"type": "array", "items": point}},
            "required": ["x", "near"],
        },
        "PointPage": {
            "type": "object",
            "properties": {"rows": {"type": "array", "items": point}},
            "required": ["rows"],
        },
    }


def test_a_body_of_rocketmq_has_the_names_that_the_console_writes() -> None:
    schemas = Schemas()
    schemas.of(TopicOffset)
    fields = schemas.named["TopicOffset"]["properties"]
    assert fields["last_update_timestamp"] == {"type": "integer"}


def test_two_classes_of_one_name_are_refused() -> None:
    schemas = Schemas()
    schemas.of(Pair)
    with pytest.raises(ValueError, match="have one name; rename one of them"):
        schemas.of(type("Pair", (), {}))
