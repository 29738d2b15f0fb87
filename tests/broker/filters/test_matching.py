"""The scan for messages that match an expression: its results and its next offset."""

from dataclasses import dataclass, field

import pytest
from aerobee.broker.filters import matching
from aerobee.broker.filters.matching import RawProperties, scan_matching, tags_of
from aerobee.broker.filters.sql92_cache import compiled
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.message import properties
from aerobee.protocol.message.record import Record, decode_record, encode_record
from aerobee.store.base import status
from aerobee.store.engine.store import Found
from hypothesis import given, strategies

CHUNK = 32


def record(number: int, pairs: dict[str, str]) -> bytes:
    body = b"%d" % number
    raw = properties.encode(pairs)
    return encode_record(
        Record(0, 0, 0, 0, 0, number, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, body, "T", raw)
    )


@dataclass
class Queue:
    """Stands in for the store: one queue, in which None is a deleted message.

    As in the store, a get returns at most CHUNK entries, in one piece or several, and skips
    deleted messages.
    """

    messages: list[bytes | None]
    whole: bool = True  # adjacent records come as one piece
    asked: list[tuple[int, int]] = field(default_factory=list)

    def get(
        self, topic: str, queue_id: int, offset: int, messages_max: int, bytes_max: int
    ) -> Found:
        self.asked.append((offset, messages_max))
        end = len(self.messages)
        if offset >= end:
            return Found(status.OFFSET_OVERFLOW_ONE, offset, 0, end, [], 0, 0)
        found = Found(status.FOUND, offset, 0, end, [], 0, 0)
        for one in self.messages[offset : offset + max(1, min(messages_max, CHUNK))]:
            if one is not None:
                if found.records and found.size + len(one) > bytes_max:
                    break
                found.records.append(one)
                found.size += len(one)
                found.count += 1
            found.next_offset += 1
        if not found.records:
            found.status = status.MESSAGE_WAS_REMOVING
        elif self.whole:
            found.records = [memoryview(b"".join(found.records))]
        return found


def scanned(
    queue: Queue,
    offset: int = 0,
    *,
    wanted: str = "a = '1'",
    messages_max: int = 32,
    bytes_max: int = 1 << 20,
    entries_max: int = 800,
) -> tuple[Found, list[int]]:
    found = scan_matching(
        queue,  # type: ignore[arg-type]
        "T",
        0,
        offset,
        messages_max,
        bytes_max,
        compiled(wanted),
        entries_max,
    )
    assert found.count == len(found.records)
    assert found.size == sum(map(len, found.records))
    return found, [decode_record(one).queue_offset for one in found.records]


def every(step: int, count: int) -> list[bytes | None]:
    """`count` messages of which every `step`-th matches."""
    return [record(number, {"a": "1" if number % step == 0 else "2"}) for number in range(count)]


@pytest.mark.parametrize("whole", [True, False])
def test_matches_are_returned_and_the_next_offset_follows_the_scanned_range(whole: bool) -> None:
    found, numbers = scanned(Queue(every(10, 100), whole))
    assert (found.status, numbers) == (status.FOUND, list(range(0, 100, 10)))
    assert (found.next_offset, found.min_offset, found.max_offset) == (100, 0, 100)


def test_a_full_response_ends_before_the_next_match() -> None:
    found, numbers = scanned(Queue(every(10, 400)), messages_max=5)
    assert numbers == [0, 10, 20, 30, 40]
    assert found.next_offset == 50


def test_the_byte_limit_ends_a_response_and_the_first_message_always_fits() -> None:
    size = len(record(10, {"a": "1"}))
    found, numbers = scanned(Queue(every(10, 100)), 10, bytes_max=2 * size)
    assert (numbers, found.next_offset) == ([10, 20], 30)
    found, numbers = scanned(Queue(every(10, 100)), 10, bytes_max=1)
    assert (numbers, found.next_offset) == ([10], 20)


def test_one_scan_is_limited_in_messages_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, numbers = scanned(Queue(every(1_000, 999)), 1, entries_max=800)
    assert (found.status, found.next_offset, numbers) == (status.NO_MATCHED_MESSAGE, 801, [])
    monkeypatch.setattr(matching, "SCAN_BYTES_MAX", 1)
    found, _ = scanned(Queue(every(1_000, 999)), 1, entries_max=800)
    assert found.next_offset == 1 + CHUNK


@pytest.mark.parametrize("offset", [100, 120])
def test_an_offset_without_a_message_has_the_status_of_the_store(offset: int) -> None:
    found, numbers = scanned(Queue(every(1, 100)), offset)
    assert (found.status, found.next_offset, numbers) == (status.OFFSET_OVERFLOW_ONE, offset, [])


def test_deleted_messages_are_skipped() -> None:
    messages = every(1, 10)
    messages[2] = messages[3] = None
    found, numbers = scanned(Queue(messages), messages_max=4)
    assert (numbers, found.next_offset) == ([0, 1, 4, 5], 6)
    found, numbers = scanned(Queue([None] * 50))
    assert (found.status, found.next_offset) == (status.NO_MATCHED_MESSAGE, 50)


@given(
    values=strategies.lists(strategies.sampled_from(["1", "2", None]), max_size=150),
    is_whole=strategies.booleans(),
    messages_max=strategies.integers(1, 40),
    bytes_max=strategies.integers(100, 3_000),
    entries_max=strategies.integers(1, 100),
)
def test_successive_scans_return_every_match_once_under_any_limits(
    values: list[str | None], is_whole: bool, messages_max: int, bytes_max: int, entries_max: int
) -> None:
    """`values` has the property's value of each message, None for a deleted message."""
    messages = [
        None if value is None else record(number, {"a": value})
        for number, value in enumerate(values)
    ]
    queue = Queue(messages, is_whole)
    numbers, offset = [], 0
    while offset < len(messages):
        found, some = scanned(
            queue,
            offset,
            messages_max=messages_max,
            bytes_max=bytes_max,
            entries_max=entries_max,
        )
        assert found.next_offset > offset
        assert all(offset <= number < found.next_offset for number in some)
        numbers += some
        offset = found.next_offset
    assert numbers == [number for number, value in enumerate(values) if value == "1"]


def test_a_record_that_cannot_be_decoded_is_returned() -> None:
    damaged = bytearray(record(1, {"a": "2"}))
    damaged[84:88] = (1 << 31).to_bytes(4, "big")
    _, numbers = scanned(Queue([record(0, {"a": "2"})]))
    assert numbers == []
    found = scan_matching(
        Queue([bytes(damaged)]),  # type: ignore[arg-type]
        "T",
        0,
        0,
        32,
        1 << 20,
        compiled("a = '1'"),
        800,
    )
    assert found.records == [bytes(damaged)]


@pytest.mark.parametrize("size", [0, -1, 90, 95, 1 << 30])
def test_a_record_with_a_wrong_length_neither_stops_the_scan_nor_hides_others(size: int) -> None:
    messages = every(1, 5)
    broken = bytearray(record(2, {"a": "1"}))
    broken[0:4] = size.to_bytes(4, "big", signed=True)
    messages[2] = bytes(broken)
    found = scan_matching(
        Queue(messages),  # type: ignore[arg-type]
        "T",
        0,
        0,
        32,
        1 << 20,
        compiled("a = '1'"),
        800,
    )
    assert b"".join(found.records) == b"".join(one for one in messages if one is not None)
    assert found.next_offset == 5


@pytest.mark.parametrize(
    "raw",
    [
        b"a\x011\x02b\x01two\x02",
        b"a\x01old\x02a\x01new\x02",
        b"a\x01\x02b\x01x",
        b"",
        b"b\x01\xff\xfe\x02",
        "größe\x01fünf\x02a\x01ß\x02".encode(),
    ],
)
def test_reading_one_property_gives_the_value_of_the_full_parser(raw: bytes) -> None:
    every_one = properties.decode(raw)
    for name in ("a", "b", "größe", "none"):
        assert RawProperties(raw).get(name) == every_one.get(name)


def test_a_tag_subscription_matches_its_tags() -> None:
    assert tags_of(subscription("T", "*")) is None
    assert tags_of(subscription("T", "a || b")) == frozenset({97, 98})
