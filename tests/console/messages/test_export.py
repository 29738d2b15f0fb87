"""Lines of an export: whole bodies, inert cells, an end that says what is missing."""

import csv
import io
import json

import pytest
from aerobee.console.access.rights import Bodies
from aerobee.console.messages.export import COLUMNS, Lines, exported
from aerobee.console.messages.search import Progress
from aerobee.protocol.message.record import Record, decode_record

from ...client.fakes import record


def stored(body: bytes, keys: str = "k") -> Record:
    raw = f"KEYS\x01{keys}\x02shop\x01=1+1\x02".encode()
    return decode_record(record(3, body, raw_properties=raw))


def rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode())))


@pytest.mark.parametrize(
    ("body", "encoding", "text"),
    [
        (b'{"a": 1}', "text", '{"a": 1}'),
        (b"x" * 100_000, "text", "x" * 100_000),
        (b"\xff\x00", "base64", "/wA="),
    ],
)
def test_a_line_has_the_whole_body(body: bytes, encoding: str, text: str) -> None:
    row = exported(stored(body), "broker-a", Bodies.SHOWN)
    found = json.loads(Lines("jsonl").line(row))
    assert (found["encoding"], found["body"], found["broker"]) == (encoding, text, "broker-a")
    assert (found["keys"], found["offset"], found["properties"]) == ("k", 3, {"shop": "=1+1"})
    (cells,) = rows(Lines("csv").line(row))
    assert cells[COLUMNS.index("body")] == text


def test_a_body_that_is_not_to_be_seen_is_not_exported() -> None:
    row = exported(stored(b"secret"), "", Bodies.HIDDEN)
    assert (row["encoding"], row["body"]) == ("hidden", "")
    row = exported(stored(b'{"name": "secret"}'), "", Bodies.MASKED)
    assert row["encoding"] == "masked"
    assert "secret" not in row["body"]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "\n1", "\uff1d1"]
)
def test_no_cell_is_a_formula(text: str) -> None:
    row = exported(stored(text.encode(), keys=text), "", Bodies.SHOWN)
    (cells,) = rows(Lines("csv").line(row))
    assert cells[COLUMNS.index("body")] == f"'{text}"
    assert cells[COLUMNS.index("keys")] == f"'{text}"
    assert cells[COLUMNS.index("offset")] == "3"
    assert json.loads(Lines("jsonl").line(row))["body"] == text


def test_the_end_says_what_is_missing() -> None:
    progress = Progress(scanned=9, found=2, left=7, faults=["queue 0 of broker-a: it is away"])
    end = json.loads(Lines("jsonl").end(progress, "the limit"))["end"]
    assert (end["scanned"], end["left"], end["why"]) == (9, 7, "the limit")
    ((cell,),) = rows(Lines("csv").end(progress, "the limit"))
    assert cell == "not whole: the limit; queue 0 of broker-a: it is away"
    assert Lines("csv").end(Progress(scanned=9), None) == b""
    assert rows(Lines("csv").head()) == [list(COLUMNS)]
