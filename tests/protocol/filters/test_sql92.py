"""SQL92 expressions against what the Java classes made of them, and the limits of our own."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.filters import sql92

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "sql92.json").read_text())
PROPERTIES = next(case["properties"] for case in GOLDEN if case["kind"] == "properties")
# Made up by chance, of odd spellings, numbers and signs: what SelectorParser 5.3.3 made of each.
RANDOM = json.loads((Path(__file__).parents[2] / "golden" / "sql92_random.json").read_text())
CASES = [case for case in GOLDEN if case["kind"] == "sql92"]


@pytest.mark.parametrize("case", CASES, ids=[case["expression"] for case in CASES])
def test_an_expression_matches_as_in_java(case: dict[str, Any]) -> None:
    if case["result"] == "compile error":
        with pytest.raises(sql92.SqlError, match="wrong at character"):
            sql92.predicate(case["expression"])
    else:
        assert sql92.predicate(case["expression"])(PROPERTIES) is case["matched_by_broker"]


def test_expressions_made_up_by_chance_match_as_in_java() -> None:
    for case in RANDOM:
        text = case["expression"]
        if "result" in case:
            with pytest.raises(sql92.SqlError):
                sql92.predicate(text)
        else:
            matches = sql92.predicate(text)
            assert [matches(one) for one in case["properties"]] == case["matched"], text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = ", 5),
        ("a == 5", 4),
        ("a != 5", 3),
        ("(a = 5", 7),
        ("a NOT 5", 7),
        ("a IS 5", 6),
        ("a > 'x'", 5),
        ("b = 1 AND a BETWEEN 5 AND 1", 21),
        ("5 IN ('x')", 1),
        ("a = 99999999999999999999", 5),
        ("a = 0.0", 5),
        ("a = NULL", 5),
        ("a = 'open", 5),
        ("5", 1),
        ("-a", 2),
        ("-TRUE", 2),
        ("a = 5 AND 'x'", 11),
        ("a = 5 OR (-a)", 12),
        ("a = NOT 1", 9),
    ],
)
def test_a_fault_is_told_with_its_place(text: str, place: int) -> None:
    with pytest.raises(sql92.SqlError, match=f"wrong at character {place}:"):
        sql92.predicate(text)


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("not a = 5", False),  # NOT binds the bare property: false, whose reverse is no 5
        ("nota IS NULL", True),
        ("a = 5 /* so */ AND b = 'abc'", True),
        ("a = 5 -- so\n AND b = 'x'", False),
        ("a = 5 b = 'x' OR", True),
        ("a = 05", False),
        ("a = --5", True),  # no line break, no comment
        ("-- so\n a = --5", True),
        ("a = --5 OR\n b = 'x'", False),
        ("b = '--\n' OR a = --5 -- so", True),
        ("a < 5000000000", True),
        ("big > 1", False),  # is read as an Integer, which it is not
        ("big > 1L", False),
        ("big > 3000000000", True),
        ("nan > 5.5", True),
        ("b = 'abc' AND zz = 1 OR TRUE", True),
        ("a NOT BETWEEN 6 AND 7", True),
        ("zz NOT CONTAINS 'x'", False),
        ("b CONTAINS ''", False),
        ("TRUE = d", False),
        ("a = - -5", True),
    ],
)
def test_the_finer_rules(text: str, matched: bool) -> None:
    properties = PROPERTIES | {"big": "4000000000", "nan": "NaN"}
    assert sql92.predicate(text)(properties) is matched


@pytest.mark.parametrize(
    ("value", "text", "matched"),
    [
        ("0x1p3", "a > 7.5", True),
        ("0x1p3", "a < b", True),  # two properties are compared as decimal numbers
        (" -0X.8P-1f ", "a = -0.25", True),
        ("0x1p1024", "a > 1.7976931348623157E308", True),
        ("-0x1p1024", "a < 1.5", True),
        ("0x1.8", "a <> 1.5", False),  # without an exponent it is no number
        ("0x1p3", "a = 8", False),  # nor a whole one
        ("\u0663", "a = 3", True),
        ("-\uff112", "a = -12", True),
        ("\u0663", "a > 2.5", False),
        ("\U0001d7d9", "a <> 2", False),
        ("0" * 70 + "5", "a = 5", True),
        ("-" + "0" * 5_000 + "5", "a = -5", True),
        ("0" * 70, "a = 0", True),
        ("9" * 70, "a > 5", False),
        ("9" * 5_000, "a > 3000000000", False),
    ],
)
def test_a_number_in_a_property_is_read_as_java_reads_it(
    value: str, text: str, matched: bool
) -> None:
    assert sql92.predicate(text)({"a": value, "b": "9"}) is matched


def test_what_is_long_or_deep_is_refused_and_what_is_wide_is_not() -> None:
    with pytest.raises(sql92.SqlError, match="32801 characters, the limit is 32768"):
        sql92.predicate("a = '" + "x" * 32_795 + "'")
    with pytest.raises(sql92.SqlError, match="at character 8193: it has more than 8192 words"):
        sql92.predicate("(" * 10_000)
    with pytest.raises(sql92.SqlError, match="deeper than 64"):
        sql92.predicate("NOT " * 100 + "a = 5")
    assert sql92.predicate("(" * 3_000 + "a = 5" + ")" * 3_000)(PROPERTIES)
    ids = ",".join(f"'order-{number:08d}'" for number in range(1_500))
    assert sql92.predicate(f"b = 'abc' AND a NOT IN ({ids})")(PROPERTIES)
    assert sql92.predicate(" OR ".join(["a = 1"] * 900 + ["a = 5"]))(PROPERTIES)


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("body.order.total > 5", True),
        ("body.order.total > 7.5", False),
        ("body.order.total = 7.5 AND tag = 'paid'", True),
        ("body.open", True),
        ("body.open AND body.none", False),
        ("body.items.0 = 3 AND body.items.0 BETWEEN 2 AND 4", True),
        ("body.name CONTAINS 'b' AND body.name IN ('abc')", True),
        ("body.name > 5", False),
        ("body.none IS NULL AND body.name IS NOT NULL", True),
    ],
)
def test_fields_have_dots_in_their_names_and_numbers_as_values(text: str, matched: bool) -> None:
    fields = {
        "body.order.total": 7.5,
        "body.open": True,
        "body.items.0": 3,
        "body.name": "abc",
        "tag": "paid",
    }
    assert sql92.predicate(text, fields=True)(fields) is matched


def test_a_name_with_a_dot_is_a_fault_where_brokers_read_the_expression() -> None:
    with pytest.raises(sql92.SqlError, match="wrong at character 5"):
        sql92.predicate("body.order = 5")
