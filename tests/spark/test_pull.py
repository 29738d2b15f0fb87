"""Pulling a range: whole, in bounded chunks, and what happens when messages are gone."""

import asyncio
import threading

import pytest
from aerobee.client.blocking import MessageQueue, Pulled
from aerobee.client.errors import AerobeeError, IllegalMessageError, UnreachableError
from aerobee.lake.rows import pull
from aerobee.lake.rows.pull import Pulling, pull_chunks
from aerobee.lake.rows.ranges import DataLossError, QueueRange
from aerobee.protocol import codes
from aerobee.protocol.message.record import decode_all

from .fakes import FakePuller

QUEUE = ("a", "x", 0)


def chunks(
    reader: FakePuller, start: int, end: int, *, fail_on_data_loss: bool = True
) -> list[list[int]]:
    found = []
    position = start
    how = Pulling(32, fail_on_data_loss)
    for chunk in pull_chunks(reader, QueueRange(*QUEUE, start, end), how):
        assert position <= chunk.start < chunk.end <= end
        position = chunk.end
        found.append([record.queue_offset for record in decode_all(chunk.data)])
    assert not reader.is_open
    return found


def test_many_answers_make_one_piece() -> None:
    reader = FakePuller({QUEUE: range(1000)})
    assert chunks(reader, 10, 1000) == [list(range(10, 1000))]
    assert len(reader.pulls) == 31
    assert reader.pulls[-1] == (970, 30)  # no more than the range holds


def test_a_broker_that_gives_less_than_asked_for_is_asked_on() -> None:
    reader = FakePuller({QUEUE: range(100)}, given_max=7)
    assert chunks(reader, 0, 100) == [list(range(100))]


def test_chunks_end_at_a_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "PIECE_MESSAGES_MAX", 70)
    found = chunks(FakePuller({QUEUE: range(150)}), 0, 150)
    assert [len(chunk) for chunk in found] == [70, 70, 10]
    assert [offset for chunk in found for offset in chunk] == list(range(150))


def test_no_slot_is_begun_after_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "PIECE_BYTES_ENOUGH", 1)
    monkeypatch.setattr(pull, "PULLS_UNDER_WAY_MAX", 2)
    found = chunks(FakePuller({QUEUE: range(150)}), 0, 150)
    assert [len(chunk) for chunk in found] == [32, 32, 32, 32, 22]
    assert [offset for chunk in found for offset in chunk] == list(range(150))


class Slow(FakePuller):
    """Answers the first of the pulls under way last."""

    most = 0
    now = 0

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(3 if offset % 64 else 9):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().pull(queue, offset, max_messages, bulk=bulk)


def test_pulls_run_side_by_side_and_their_answers_keep_the_order() -> None:
    reader = Slow({QUEUE: range(2000)})
    assert chunks(reader, 0, 2000) == [list(range(2000))]
    assert reader.most == pull.PULLS_UNDER_WAY_MAX
    assert [offset for offset, _ in reader.pulls] != sorted(offset for offset, _ in reader.pulls)


def test_deleted_messages_fail_the_read_with_queue_and_range() -> None:
    words = (
        "nothing is at offset 10 while reading offsets 10 to 60 of queue 0 of topic a on x: "
        "the broker now holds 50 to 60"
    )
    reader = FakePuller({QUEUE: range(50, 60)})
    with pytest.raises(DataLossError, match=words):
        chunks(reader, 10, 60)
    assert not reader.is_open


def test_a_queue_that_became_shorter_fails_the_read() -> None:
    with pytest.raises(DataLossError, match="nothing is at offset 60"):
        chunks(FakePuller({QUEUE: range(60)}), 0, 100)


def test_what_is_left_is_read_when_data_loss_is_accepted() -> None:
    reader = FakePuller({QUEUE: range(50, 60)})
    assert chunks(reader, 10, 60, fail_on_data_loss=False) == [list(range(50, 60))]
    assert chunks(reader, 55, 100, fail_on_data_loss=False) == [list(range(55, 60))]
    assert chunks(reader, 10, 40, fail_on_data_loss=False) == []


class Filtering(FakePuller):
    """Says at each second pull that nothing matched and where to go on."""

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        if len(self.pulls) % 2 == 0:
            self.pulls.append((offset, max_messages))
            return Pulled(codes.PULL_RETRY_IMMEDIATELY, offset + 5, 0, 100, b"")
        return await super().pull(queue, offset, max_messages, bulk=bulk)


def test_a_broker_that_says_go_on_is_followed() -> None:
    assert chunks(Filtering({QUEUE: range(32)}), 0, 32) == [list(range(5, 32))]


class Standing(FakePuller):
    """Gives messages and the same offset as the next one."""

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        found = await super().pull(queue, offset, max_messages, bulk=bulk)
        return Pulled(found.code, offset, found.min_offset, found.max_offset, found.body)


def test_an_answer_that_leads_nowhere_ends_the_read() -> None:
    with pytest.raises(DataLossError, match="would not get on"):
        chunks(Standing({QUEUE: range(100)}), 0, 100)


class Moving(FakePuller):
    """Its broker is away for some pulls, and back under another address once its route is asked."""

    def __init__(self, away: int, *, error: type[AerobeeError] = UnreachableError) -> None:
        super().__init__({QUEUE: range(100)})
        self.away = away
        self.error = error
        self.looked_up = 0

    async def queues(self, topic: str) -> list[MessageQueue]:  # type: ignore[override]
        self.looked_up += 1
        return await super().queues(topic)

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        if offset >= 40 and self.looked_up < self.away:
            raise self.error("connection refused")
        return await super().pull(queue, offset, max_messages, bulk=bulk)


@pytest.mark.parametrize("per_pull", [None, 8])
def test_a_broker_that_moves_in_mid_read_is_followed(per_pull: int | None) -> None:
    reader = Moving(away=3)
    how = Pulling(per_pull, retries=3, retry_ms=0)
    read = pull_chunks(reader, QueueRange(*QUEUE, 0, 100), how)
    offsets = [record.queue_offset for chunk in read for record in decode_all(chunk.data)]
    assert offsets == list(range(100))
    assert reader.looked_up >= 3


def test_a_lost_broker_is_asked_as_often_as_the_options_say() -> None:
    reader = Moving(away=1_000)
    how = Pulling(100, retries=2, retry_ms=0)
    with pytest.raises(UnreachableError, match="connection refused"):
        list(pull_chunks(reader, QueueRange(*QUEUE, 50, 60), how))
    assert reader.looked_up == 2
    assert not reader.is_open


def test_what_will_not_change_is_not_tried_again() -> None:
    reader = Moving(away=1_000, error=IllegalMessageError)
    with pytest.raises(IllegalMessageError):
        list(pull_chunks(reader, QueueRange(*QUEUE, 50, 60), Pulling(retries=2, retry_ms=0)))
    assert reader.looked_up == 0


def test_a_read_that_is_given_up_leaves_no_connection_and_no_thread() -> None:
    reader = FakePuller({QUEUE: range(100_000)})
    found = pull_chunks(reader, QueueRange(*QUEUE, 0, 100_000), Pulling(32))
    next(found)
    assert reader.is_open
    assert [each for each in threading.enumerate() if each.name == "aerobee-pull"]
    found.close()  # type: ignore[attr-defined]
    assert not reader.is_open
    assert [each for each in threading.enumerate() if each.name == "aerobee-pull"] == []
