"""Which bodies fit which columns, what the columns have then, and which schemas are none."""

import json
import math
import re
from datetime import UTC, date, datetime
from itertools import permutations
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

import pyarrow as pa
from aerobee.lake.bodies import infer
from aerobee.lake.bodies.decoder import DEPTH_MAX, REASON_MAX, BodyDecoder
from aerobee.lake.bodies.fields import FIELDS_MAX, ddl, ddl_of, parse
from aerobee.lake.bodies.infer import SHOWN, inferred
from aerobee.lake.errors import LakeError

ODD: list[Any] = [None, 1, 1.5, "x", True, [], {}, 1 << 70]
LATE = '"9999-12-31T23:59:59-01:00"'  # which is another year in UTC
EVERY_TYPE = (
    "id bigint, n int, b boolean, amount double, s string, d date, at timestamp, "
    "items array<struct<sku:string,n:int>>, body_key string, `a b` array<array<int>>"
)


def split(schema: str, *bodies: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """The columns of the bodies that fit, and the reasons of the others."""
    rows = pa.record_batch([pa.array(bodies, pa.binary())], ["value"])
    fit, dead = BodyDecoder(parse(schema)).split(rows)
    assert fit.num_rows + dead.num_rows == len(bodies)
    return fit.drop_columns(["value"]).to_pylist(), dead.column("reason").to_pylist()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bigint", "9223372036854775807", (1 << 63) - 1),
        ("bigint", "-9223372036854775808", -(1 << 63)),
        ("bigint", "null", None),
        ("int", "-2147483648", -(1 << 31)),
        ("double", "1", 1.0),
        ("double", "-1.5e3", -1500.0),
        ("double", "123456789012345678901234567890", 123456789012345678901234567890.0),
        ("boolean", "true", True),
        ("string", '"gr\\u00fc\\u0000n"', "grü\0n"),
        ("string", '""', ""),
        ("date", '"2026-02-28"', date(2026, 2, 28)),
        ("timestamp", '"2026-01-01T01:00:00+01:00"', datetime(2026, 1, 1, tzinfo=UTC)),
        (
            "timestamp",
            '"2026-01-01T00:00:00.1234567Z"',
            datetime(2026, 1, 1, 0, 0, 0, 123457, tzinfo=UTC),
        ),
        ("timestamp", '"0001-01-01T00:00:00-01:00"', datetime(1, 1, 1, 1, tzinfo=UTC)),
        ("array<int>", "[1, null]", [1, None]),
        ("struct<a:array<timestamp>,b:timestamp>", '{"a": [null]}', {"a": [None], "b": None}),
        ("struct<a:int,b:array<string>>", '{"b": ["x"], "c": 1}', {"a": None, "b": ["x"]}),
    ],
)
def test_what_fits_a_type(kind: str, text: str, value: Any) -> None:
    assert split(f"x {kind}", b'{"x": %s}' % text.encode()) == ([{"x": value}], [])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("bigint", text) for text in ("1.5", "1.0", "1e2", '"1"', "true", "[]", str(1 << 63))),
        *(("int", text) for text in ("2147483648", "-2147483649", "1.0")),
        *(("double", text) for text in ("1e400", '"1"', "false", "1" + "0" * 400)),
        *(("boolean", text) for text in ("1", '"true"')),
        *(("string", text) for text in ("1", "{}")),
        *(("date", text) for text in ('"2026-02-30"', '"2026-02-28T00:00:00Z"', "1")),
        *(("timestamp", text) for text in ('"2026-01-01T00:00:00"', "1700000000000", '"now"')),
        *(("timestamp", text) for text in ('"0001-01-01T00:00:00+01:00"', LATE)),
        *(("array<timestamp>", text) for text in (f'["2026-01-01T00:00:00Z", {LATE}]',)),
        ("struct<a:int,b:array<struct<c:timestamp>>>", f'{{"b": [null, {{"c": {LATE}}}]}}'),
        *(("array<int>", text) for text in ("{}", '["a"]', "1")),
        *(("struct<a:int>", text) for text in ("[]", '{"a": "b"}')),
    ],
)
def test_what_does_not_fit_a_type_names_the_field(kind: str, text: str) -> None:
    fit, (reason,) = split(f"x {kind}", b'{"x": %s}' % text.encode())
    assert fit == []
    assert "`$.x" in reason
    assert len(reason) <= REASON_MAX


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is no JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b"{} {}", "the body is no JSON: .*trailing"),
        (b'{"x": NaN}', "the body is no JSON"),
        (b'{"more": NaN}', "the body is no JSON"),
        (b'{"more": "\xff"}', "the body is no UTF-8 at byte 10"),
        (b"\xef\xbb\xbf{}", "the body is no JSON"),
        (b'{"more": "\\ud800"}', "the body is no JSON"),
        (b'{"more": "a\0"}', "the body is no JSON"),
        (b"\0" * 9, "the body is no JSON"),
        (b'{"x": 1, "x": "a"}', r"got `str` - at `\$\.x`"),
        (b'{"x": "a", "x": 1}', r"got `str` - at `\$\.x`"),
        (b'{"more": %s}' % (b"[" * DEPTH_MAX + b"]" * DEPTH_MAX), "nested more than 100 deep"),
        (b"[" * (4 << 20), "nested more than 100 deep"),
        (b'{"x": "' + b"a" * (4 << 20) + b'"}', r"got `str` - at `\$\.x`"),
    ],
)
def test_bodies_that_are_none(body: bytes, says: str) -> None:
    good = b'{"x": 3}'
    fit, reasons = split("x bigint", good, body, good)
    assert fit == [{"x": 3}, {"x": 3}]
    (reason,) = reasons
    assert len(reason) <= REASON_MAX
    assert re.search(says, reason)


def test_what_is_not_declared_or_in_texts_does_not_count() -> None:
    deep = b'{"more": %s}' % (b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1))
    text = b'{"x": 1, "more": "%s\\"%s"}' % (b"[" * 999, b"{" * 999)
    last = b'{"x": 1, "x": 2, "more": 1e999}'
    pretty = b'\n{\n  "x" :\t1\n}\n'
    long = b'{"x": 5, "more": "' + b"a" * (4 << 20) + b'"}'
    fit, reasons = split("x bigint", deep, text, last, pretty, long, b"{}")
    assert [row["x"] for row in fit] == [None, 1, 2, 1, 5, None]
    assert reasons == []


def test_a_column_with_the_name_of_a_messages_has_a_prefix() -> None:
    body = b'{"key": "a", "body_key": "b", "offset": 3, "body_x": 4}'
    fit, _ = split("body_key string, body_offset int, body_x int", body)
    assert fit == [{"body_key": "a", "body_offset": 3, "body_x": 4}]
    with pytest.raises(LakeError, match=r"names Key, which is a column .* write body_Key"):
        parse("Key string")


def test_random_bodies_fit_as_another_decoder_says() -> None:
    draw = Random(11)
    good = {"id": 1, "amount": 1.5, "s": "aé", "b": True, "l": [1, None, 2], "o": {"k": [{}, "["]}}
    bodies = []
    for _ in range(3_000):
        chosen = {key: value for key, value in good.items() if draw.random() < 0.8}
        if draw.random() < 0.3:
            chosen[draw.choice(list(good))] = draw.choice(
                [None, 1, 1.5, "x", True, [], {}, 1 << 70]
            )
        body = bytearray(json.dumps(chosen, ensure_ascii=draw.random() < 0.5).encode())
        if draw.random() < 0.3:
            body[draw.randrange(len(body))] = draw.choice(b'{}[]",:\\0a\x00\xff ')
        bodies.append(bytes(body))
    for each in bodies:
        fit, reasons = split("id bigint, amount double, s string, b boolean, l array<int>", each)
        expected = _expected(each)
        assert bool(reasons) == (expected is None), each
        assert fit == ([] if expected is None else [expected]), each


def _expected(body: bytes) -> dict[str, Any] | None:
    """What the columns have, by Python's parser; None when the body does not fit."""

    def unknown(text: str) -> None:
        raise ValueError(text)

    try:
        pairs = json.loads(body.decode(), object_pairs_hook=_Pairs, parse_constant=unknown)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs):
        return None
    checks: dict[str, Any] = {
        "id": lambda each: type(each) is int and -(1 << 63) <= each < 1 << 63,
        "amount": lambda each: type(each) in (int, float) and math.isfinite(each),
        "s": lambda each: type(each) is str,
        "b": lambda each: type(each) is bool,
        "l": lambda each: (
            type(each) is list
            and all(item is None or (type(item) is int and abs(item) < 1 << 31) for item in each)
        ),
    }
    found: dict[str, Any] = dict.fromkeys(checks)
    for key, value in pairs:
        if key in checks:
            if value is not None and not checks[key](value):
                return None
            found[key] = value
    return found


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs, so that keys which are there twice stay."""


def test_a_schema_is_the_same_when_it_is_written_and_read_again() -> None:
    fields = parse(EVERY_TYPE)
    assert parse(ddl(fields)) == fields
    assert [ddl_of(each.kind.iceberg()) for each in fields] == [str(each.kind) for each in fields]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the end is there instead of a field's name"),
        ("id", "the end is there instead of a type; there are boolean, int"),
        ("id foo", "'foo' is there instead of a type"),
        ("m map<string,int>", "'map' is there instead of a type"),
        ("p decimal(3,2)", "'decimal' is there instead of a type"),
        ("id bigint,", "the end is there instead of a field's name"),
        ("id bigint, ID int", "the field ID is there twice"),
        ("a array<int", "not closed by >"),
        ("a array", "array needs <"),
        ("a struct<>", "'>' is there instead"),
        ("a int b int", "'b' comes after a"),
        ("`a.b` int", "is none for a column"),
        ("a int; drop", "';' comes after a"),
        ("a " + "array<" * 99, "nested more than 16 deep"),
        (", ".join(f"c{n} int" for n in range(FIELDS_MAX + 1)), "more than 1000 fields"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, says: str) -> None:
    with pytest.raises(LakeError, match=says):
        parse(text)


@pytest.mark.parametrize("name", ['a"b', "a\\b"])
def test_a_name_that_no_decoder_has_is_refused_and_not_inferred(name: str) -> None:
    with pytest.raises(LakeError, match="none for a column"):
        parse(f"`{name}` int")
    assert ddl(inferred([json.dumps({name: 1, "x": 2}).encode()]).fields) == "x bigint"


def test_columns_are_inferred_from_bodies_that_then_fit() -> None:
    bodies = [
        {"id": 1, "amount": 1, "key": "a", "when": "2026-01-01T00:00:00Z", "no": 1, "none": None},
        {"id": 2, "amount": 1.5, "tags": ["x", None], "when": "2026-01-02T00:00:00Z", "no": "x"},
        {"o": {"n": 1, "m": [], "k": None}, "text": "2026-01-01T00:00:00Z", "ID": 1, "e": []},
        {"o": {"s": "x"}, "text": "later", "a.b": 1, "items": [{"n": 1}, {"m": True}]},
    ]
    texts = [json.dumps(each).encode() for each in bodies]
    seen = inferred([*texts, b"no JSON", b"[]", b"\xff"])
    found = ddl(seen.fields)
    assert found == (
        "id bigint, amount double, body_key string, when timestamp, body_tags array<string>, "
        "o struct<n:bigint,s:string>, text string, items array<struct<n:bigint,m:boolean>>"
    )
    fit, reasons = split(found, *texts)
    assert (len(fit), reasons) == (len(bodies), [])
    assert (seen.fit, seen.bodies) == (len(bodies), len(bodies) + 3)
    assert dict(seen.left_out) == {
        "no": "its values have several types: bigint, string",
        "none": "it never has a value",
        "ID": "its name differs from id in case alone",
        "o.m[]": "it never has a value",
        "o.k": "it never has a value",
        "e[]": "it never has a value",
        "a.b": "the name 'a.b' is none for a column; give up to 100 printable characters without "
        '., " and \\',
    }


def test_more_fields_than_a_schema_has_are_left_out() -> None:
    bodies = [
        json.dumps({f"k{2 * n + m}": n for m in range(2)}).encode() for n in range(FIELDS_MAX)
    ]
    inner = json.dumps({"o": {f"i{n}": n for n in range(FIELDS_MAX)}, "x": 1}).encode()
    found = inferred([inner, *bodies])
    assert [each.name for each in found.fields] == ["x", *(f"k{n}" for n in range(FIELDS_MAX - 1))]
    assert parse(ddl(found.fields)) == found.fields
    why = "the columns would have more than 1,000 fields, with those inside"
    lost = ["o", *(f"k{n}" for n in range(FIELDS_MAX - 1, 2 * FIELDS_MAX))]
    assert found.left_out == (
        ("o", "it has more than 1000 fields"),
        *((name, why) for name in lost[1:]),
    )
    assert found.told() == [
        "left out: o: it has more than 1000 fields",
        *(f"left out: {name}: {why}" for name in lost[1:SHOWN]),
        f"left out: {len(lost) - SHOWN:,} more fields",
        "1,001 of the 1,001 newest bodies fit",
    ]


def test_names_without_end_are_looked_at_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer, "NAMES_MAX", 3)
    found = inferred([f'{{"a{n}": 1, "b{n}": 2}}'.encode() for n in range(3)])
    assert ddl(found.fields) == "a0 bigint, b0 bigint, a1 bigint"
    assert found.left_out == (("others", "only the first 3 names were looked at"),)


@pytest.mark.parametrize("order", [1, -1])
def test_a_field_with_the_name_of_anothers_column_is_left_out(order: int) -> None:
    """body_key is the column of the field key, since key is a column of every message."""
    body = dict([("key", 1), ("body_key", "x")][::order])
    found = inferred([json.dumps(body).encode()])
    assert ddl(found.fields) == "body_key bigint"
    assert found.left_out == (("body_key", "the column body_key is for the field key"),)
    assert found.fit == 1


def test_a_struct_whose_names_differ_in_case_alone_is_left_out_with_the_reason() -> None:
    found = inferred([b'{"o": {"ID": 1, "id": 2}, "x": {"y": [1, "z", true, {}]}}', b'{"n": 1}'])
    assert ddl(found.fields) == "n bigint"
    assert dict(found.left_out) == {
        "o": "the field id is there twice",
        "x.y[]": "its values have several types: bigint, boolean, string, struct",
    }


def test_what_is_said_of_several_types_does_not_depend_on_the_order_of_bodies() -> None:
    bodies = [b'{"n": 1, "x": "a"}', b'{"n": 2, "x": true}', b'{"x": 3}']
    said = {inferred(each).left_out for each in permutations(bodies)}
    assert said == {(("x", "its values have several types: bigint, boolean, string"),)}


def test_bodies_without_columns_infer_none() -> None:
    found = inferred([b"1", b"{}", b'{"a": null}', b'{"b": 1}', b'{"b": true}'])
    assert found.fields == ()
    assert [name for name, _ in found.left_out] == ["a", "b"]
