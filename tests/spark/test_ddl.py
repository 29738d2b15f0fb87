"""A wrong schema is told without Spark; a right one is never refused."""

import pytest
from aerobee.spark.ddl import fault_in


@pytest.mark.parametrize(
    "text",
    [
        "id bigint, price double",
        "id BIGINT NOT NULL, at timestamp_ntz",
        "a: int, b: struct<x:int,y:array<string>>",
        "`we ird, name` decimal(10,2) COMMENT 'it\\'s (a, b'",
        "a map<string, struct<b int>>, c interval day to second",
        "größe string",
        "struct<a:int>",
    ],
)
def test_a_right_schema_passes(text: str) -> None:
    assert fault_in(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("id bigit", "'bigit' is no type; did you mean bigint?"),
        ("id", "'id' is no column; write a name and a type"),
        ("a int,,b int", "'' is no column; write a name and a type"),
        ("a int, b array<int", "'<' is not closed"),
        ("a int>", "'>' at character 6 closes nothing"),
        ("a decimal(10>", "'>' at character 13 closes nothing"),
        ("`a int", "'`' is not closed"),
    ],
)
def test_a_wrong_one_is_told_with_what_is_wrong(text: str, fault: str) -> None:
    assert fault_in(text) == fault
