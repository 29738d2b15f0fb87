"""Properties against the bytes that the real classes made, and the quick look for one of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.message import properties
from hypothesis import given, strategies

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "batch_and_properties.json").read_text()
)
WRITTEN = [v for v in GOLDEN if v["name"].startswith("properties to string")]
# All but the two separators and halves of a character.
TEXT = strategies.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])
READ = [v for v in GOLDEN if v["name"].startswith("string to properties")]


def test_there_are_vectors_for_both_ways() -> None:
    assert len(WRITTEN) == 1
    assert len(READ) == 8


def test_only_blanks_separate_keys() -> None:
    keys = "o-1  \u8ba2\u5355\u30001 tab\tkey "
    assert properties.keys_of({"KEYS": keys}) == ["o-1", "\u8ba2\u5355\u30001", "tab\tkey"]
    assert properties.keys_of({}) == []


@pytest.mark.parametrize("vector", WRITTEN, ids=lambda v: v["name"])
def test_properties_are_written_as_java_writes_them(vector: dict[str, Any]) -> None:
    assert properties.encode(vector["properties"]) == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("vector", READ, ids=lambda v: v["hex"])
def test_properties_are_read_as_java_reads_them(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    assert properties.decode(raw) == vector["properties"]
    assert properties.decode(raw.decode()) == vector["properties"]
    assert properties.decode(memoryview(raw)) == vector["properties"]


@pytest.mark.parametrize(
    "raw",
    [bytes.fromhex(vector["hex"]) for vector in READ]
    + [
        b"KEYS\x01a\x02",
        b"KEYS\x01a",
        b"XKEYS\x01a\x02",
        b"KEYS\x01\x02",
        b"KEYS\x01",
        b"a\x01KEYS\x01b\x02",
        b"a\x01x\x02KEYS\x01first\x02KEYS\x01second\x02b\x01y\x02",
        b"KEYS\x01kept\x02KEYS\x01\x02",
        b"a\x01x\x02KEYS\x01kept\x02KEYS\x01",
        b"KEYS\x01kept\x02KEYS\x02a\x01b",
        b"KEYS\x01one\x01two\x02",
        b"\x02\x02KEYS\x01late\x02",
    ],
)
def test_the_quick_look_finds_what_reading_all_finds(raw: bytes) -> None:
    everything = properties.decode(raw)
    for name in ("KEYS", "A", "a", "C", "x", "empty", "absent"):
        value = everything.get(name)
        expected = None if value is None else value.encode()
        assert properties.find(raw, name.encode()) == expected, name


@given(
    strategies.lists(strategies.sampled_from([b"KEYS", b"A", b"x", b"\x01", b"\x02"])).map(b"".join)
)
def test_the_quick_look_and_reading_all_agree_on_any_text(raw: bytes) -> None:
    everything = properties.decode(raw)
    for name in ("KEYS", "A", "x", "AA", "xKEYS"):
        value = everything.get(name)
        expected = None if value is None else value.encode()
        assert properties.find(raw, name.encode()) == expected, name


@given(
    strategies.dictionaries(
        strategies.text(TEXT, min_size=1), strategies.text(TEXT, min_size=1), max_size=8
    )
)
def test_properties_come_back_as_they_were_written(pairs: dict[str, str]) -> None:
    assert properties.decode(properties.encode(pairs)) == pairs


def test_texts_beyond_ascii_survive() -> None:
    pairs = {"键": "值😀", "é": "ü"}
    assert properties.decode(properties.encode(pairs)) == pairs


def test_half_a_surrogate_pair_is_replaced_and_does_not_raise() -> None:
    assert properties.encode({"a": "\ud800"}) == b"a\x01?\x02"


def test_the_reserved_names_hold_what_users_may_not_set() -> None:
    assert {"KEYS", "TAGS", "DELAY", "UNIQ_KEY", "__CRC32#"} <= properties.RESERVED
    assert properties.SHARDING_KEY not in properties.RESERVED
    assert properties.TRANSACTION_ID not in properties.RESERVED


def test_a_scan_says_where_each_value_lies_in_plain_properties_only() -> None:
    raw = b"KEYS\x01a b\x02TAGS\x01t\x02"
    marks = properties.scan(raw)
    assert marks is not None
    assert {name: raw[start:end] for name, (start, end) in marks.items()} == {
        b"KEYS": b"a b",
        b"TAGS": b"t",
    }
    assert properties.scan(raw[:-1]) == marks
    assert properties.scan(b"") == {}
    for odd in (b"KEYS\x01\x02", b"\x01a\x02", b"KEYS\x02", raw + raw, b"\x02" + raw):
        assert properties.scan(odd) is None


def test_properties_are_left_out_by_whole_names() -> None:
    raw = b"A\x011\x02AB\x012\x02C\x013\x02A\x014\x02"
    assert properties.without(raw, "A", "C") == b"AB\x012\x02"
    assert properties.without(raw, "B") == raw


def test_a_form_that_ends_within_a_pair_gets_the_separator() -> None:
    assert properties.ended("A\x011") == properties.ended("A\x011\x02") == "A\x011\x02"
    assert properties.ended(b"A\x011") == properties.ended(b"A\x011\x02") == b"A\x011\x02"
    assert properties.ended("") == ""
