"""Queries: messages by key, by id, and the entries of a consume queue."""

import asyncio
import itertools
from pathlib import Path

import pytest
from aerobee.broker.pull import query_handlers as query_module
from aerobee.protocol import codes
from aerobee.protocol.bodies.queues import QueryConsumeQueueResponseBody
from aerobee.protocol.command import Response
from aerobee.protocol.errors import Refusal
from aerobee.protocol.message.record import Record, decode_all
from aerobee.protocol.message.tags import string_hash

from ..parts import START_MS, Parts, refused

ON_BOTH_ENGINES = True


def query(parts: Parts, key: str, **fields: object) -> Response:
    wanted = {
        "topic": "T",
        "key": key,
        "maxNum": 32,
        "beginTimestamp": 0,
        "endTimestamp": START_MS * 2,
    }
    return parts.ask(codes.QUERY_MESSAGE, **(wanted | fields))


def records(reply: Response) -> list[Record]:
    body = reply.body
    return decode_all(body if isinstance(body, bytes) else b"".join(body or []))


# --- 12 -------------------------------------------------------------------------------------------


def test_messages_are_found_by_their_keys(parts: Parts) -> None:
    parts.put("T", body=b"one", KEYS="a b", UNIQ_KEY="U1")
    parts.put("T", body=b"two", KEYS="b", UNIQ_KEY="U2")
    last = parts.put("T", body=b"three", KEYS="c", UNIQ_KEY="U3", at_ms=START_MS + 7)
    reply = query(parts, "b")
    assert (reply.code, reply.remark) == (0, None)
    assert [record.body for record in records(reply)] == [b"one", b"two"]
    assert reply.fields == {
        "indexLastUpdateTimestamp": str(START_MS + 7),
        "indexLastUpdatePhyoffset": str(last),
    }


async def test_a_query_indexes_pending_keys_in_slices_between_other_work(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "KEYS_AT_ONCE", 2)
    times = itertools.count()
    monkeypatch.setattr(parts.slices, "_clock", lambda: float(next(times)))
    for number in range(7):
        parts.put("T", body=b"%d" % number, KEYS="k")
    backlogs = []

    async def others() -> None:
        while parts.store.index_backlog:
            backlogs.append(parts.store.index_backlog)
            await asyncio.sleep(0)

    wanted = {"topic": "T", "key": "k", "maxNum": 32, "beginTimestamp": 0}
    reply, _ = await asyncio.gather(
        parts.ask_later(codes.QUERY_MESSAGE, **wanted, endTimestamp=START_MS * 2), others()
    )
    assert [record.body for record in records(reply)] == [b"%d" % number for number in range(7)]
    assert list(dict.fromkeys(backlogs)) == [3, 1]  # two with the request, two right after it


async def test_a_query_yields_to_other_work_after_each_message(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        parts.put("T", body=b"%d" % number, KEYS="k")
    parts.store.index_pending()
    times = itertools.count()
    monkeypatch.setattr(parts.slices, "_clock", lambda: float(next(times)))
    read: list[int] = []
    message_at = parts.store.message_at

    def noted(place: int) -> bytes | None:
        read.append(place)
        return message_at(place)

    monkeypatch.setattr(parts.store, "message_at", noted)
    wanted = {"topic": "T", "key": "k", "maxNum": 32, "beginTimestamp": 0}
    answer = asyncio.ensure_future(
        parts.ask_later(codes.QUERY_MESSAGE, **wanted, endTimestamp=START_MS * 2)
    )
    most = 0
    while not answer.done():
        before = len(read)
        await asyncio.sleep(0)
        most = max(most, len(read) - before)
    assert [record.body for record in records(await answer)] == [b"%d" % n for n in range(20)]
    assert most <= 2  # the first is read in the request's own step


def test_a_query_is_limited_by_time_range_and_count(parts: Parts) -> None:
    for at in range(4):
        parts.put("T", body=b"%d" % at, KEYS="k", at_ms=START_MS + at * 1_000)
    later = query(parts, "k", beginTimestamp=START_MS + 1_500)
    assert [record.body for record in records(later)] == [b"2", b"3"]
    assert len(records(query(parts, "k", maxNum=1))) == 1


def test_a_query_by_unique_key_uses_the_brokers_limit(tmp_path: Path) -> None:
    parts = Parts(tmp_path, default_query_max_num=2)
    try:
        for _ in range(3):
            parts.put("T", UNIQ_KEY="U")
        assert len(records(query(parts, "U", maxNum=1, _UNIQUE_KEY_QUERY=True))) == 2
    finally:
        parts.store.close()


def test_a_key_of_another_topic_is_not_found(parts: Parts) -> None:
    parts.put("Other", KEYS="k")
    with pytest.raises(Refusal) as caught:
        query(parts, "k")
    assert caught.value.code == codes.QUERY_NOT_FOUND
    assert caught.value.remark == "can not find message, maybe time range not correct"
    assert caught.value.fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


def test_a_query_response_stays_below_the_frame_limit(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        parts.put("T", body=b"x" * 1_000, KEYS="k")
    monkeypatch.setattr(query_module, "RESPONSE_BYTES_MAX", 2_500)
    assert len(records(query(parts, "k"))) == 2
    monkeypatch.setattr(query_module, "RESPONSE_BYTES_MAX", 1)
    assert len(records(query(parts, "k"))) == 1  # one message always fits


@pytest.mark.parametrize("fields", [{"maxNum": "many"}, {"beginTimestamp": "yesterday"}])
def test_a_malformed_query_is_refused_with_the_name_of_the_field(
    parts: Parts, fields: dict[str, object]
) -> None:
    with pytest.raises(Refusal) as caught:
        query(parts, "k", **fields)
    assert caught.value.code == codes.SYSTEM_ERROR
    assert next(iter(fields)) in caught.value.remark


# --- 33 -------------------------------------------------------------------------------------------


def test_a_message_is_viewed_by_its_log_offset(parts: Parts) -> None:
    parts.put("T", body=b"first")
    offset = parts.put("T", body=b"second")
    reply = parts.ask(codes.VIEW_MESSAGE_BY_ID, offset=offset, topic="T")
    (record,) = records(reply)
    assert (record.body, record.log_offset) == (b"second", offset)


@pytest.mark.parametrize("offset", [99_999_999, -1, 3])
def test_an_offset_where_no_message_starts_is_refused(parts: Parts, offset: int) -> None:
    parts.put("T")
    refusal = refused(parts, codes.VIEW_MESSAGE_BY_ID, offset=offset)
    assert refusal.code == 1
    assert (refusal.remark or "").startswith(f"can not find message by the offset, {offset}: no")


# --- 321 ------------------------------------------------------------------------------------------


def queried(
    parts: Parts, index: int, count: int, **fields: object
) -> QueryConsumeQueueResponseBody:
    wanted = {"topic": "T", "queueId": 0, "index": index, "count": count}
    body = parts.ask(codes.QUERY_CONSUME_QUEUE, **(wanted | fields)).body
    assert isinstance(body, bytes)
    return QueryConsumeQueueResponseBody.decode(body)


def test_a_query_returns_the_entries_of_a_consume_queue(parts: Parts) -> None:
    offsets = [parts.put("T", TAGS=tag) for tag in ("a", "b", "c")]
    found = queried(parts, 1, 5)
    assert (found.min_queue_index, found.max_queue_index) == (0, 3)
    assert [one.physic_offset for one in found.queue_data] == offsets[1:]
    assert [one.tags_code for one in found.queue_data] == [string_hash("b"), string_hash("c")]
    assert found.queue_data[0].physic_size == offsets[2] - offsets[1]
    assert [one.physic_offset for one in queried(parts, 0, 1).queue_data] == offsets[:1]
    assert queried(parts, 0, -1).queue_data == []


def test_the_response_includes_the_groups_subscription(parts: Parts) -> None:
    parts.put("T")
    assert queried(parts, 0, 1, consumerGroup="G").filter_data == "G@T is not online!"
    parts.join("G", {"T": "a"})
    found = queried(parts, 0, 1, consumerGroup="G")
    assert found.filter_data == "null"
    assert found.subscription_data is not None
    assert found.subscription_data.sub_string == "a"


def test_an_index_beyond_the_queue_gives_only_a_remark(parts: Parts) -> None:
    parts.put("T")
    reply = parts.ask(codes.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=1, count=1)
    assert (reply.code, reply.remark, reply.body) == (0, "Index 1 of 0@T is not exist!", None)


def test_a_query_of_an_unknown_queue_is_refused(parts: Parts) -> None:
    fields = {"topic": "T", "queueId": 77, "index": 0, "count": 1}
    refusal = refused(parts, codes.QUERY_CONSUME_QUEUE, **fields)
    assert (refusal.code, refusal.remark) == (1, "77@T is not exist!")


def test_the_number_of_entries_is_limited(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        parts.put("T")
    monkeypatch.setattr(query_module, "ENTRIES_MAX", 2)
    assert len(queried(parts, 0, 3).queue_data) == 2
