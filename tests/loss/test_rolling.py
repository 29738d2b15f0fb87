"""scripts/rolling: what its book finds, and a whole run of the smallest profile."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aerobee.client import ReceivedMessage
from aerobee.protocol.bodies.body import MessageQueue

from . import rolling
from .rolling import ANY, ORDERED, Book, roll


def message(topic: str, offset: int, body: bytes) -> ReceivedMessage:
    queue = MessageQueue(topic, "broker-1", 0)
    return cast(ReceivedMessage, SimpleNamespace(queue=queue, offset=offset, body=body))


def test_what_was_acknowledged_and_delivered_has_no_fault() -> None:
    book = Book()
    book.sent(b"1", 0.0)
    book.got(message(ANY, 0, b"1"))
    book.got(message(ANY, 0, b"1"))  # once more
    book.keys["k"] = 2
    for offset, body in enumerate([b"k 1", b"k 2", b"k 2"]):
        book.got_in_order(message(ORDERED, offset, body))
    book.got_in_order(message(ORDERED, 0, b"k 1"))  # from a committed offset on
    assert book.is_complete()
    assert book.faults() == []


def test_a_message_that_was_not_delivered_is_lost() -> None:
    book = Book()
    book.sent(b"1", 0.0)
    book.keys["k"] = 1
    assert not book.is_complete()
    assert book.faults() == [
        "1 acknowledged messages were not delivered: [b'1']",
        "key k: acknowledged up to 1, delivered up to 0",
    ]


def test_a_key_out_of_order_is_found() -> None:
    book = Book()
    book.got_in_order(message(ORDERED, 1, b"k 2"))
    book.got_in_order(message(ORDERED, 0, b"k 1"))
    assert book.faults() == ["key k: number 2 was delivered after 0"]


def test_another_message_at_an_offset_is_found() -> None:
    book = Book()
    book.got(message(ANY, 0, b"1"))
    book.got(message(ANY, 0, b"2"))
    (fault,) = book.faults()
    assert "had b'1', then b'2'" in fault


def test_each_daemon_of_two_masters_restarts_without_a_failed_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asyncio.run(roll("2m", tmp_path)) == []
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["namesrv", "master-1", "master-2"]
    assert "messages acknowledged" in lines[3]


def test_an_unknown_profile_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["scripts/rolling", "3m"])
    with pytest.raises(SystemExit) as ended:
        rolling.main()
    assert ended.value.code == 2
    assert "invalid choice: '3m' (choose from" in capsys.readouterr().err
