"""A redrive that is killed at any point and run again sends each letter once, or says which are
unknown."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aerobee.client.errors import AerobeeError, BrokerError, ClientError, NoAnswerError
from aerobee.console.actions.ledger import Ledger
from aerobee.console.actions.redrive import (
    FAILURES_MAX,
    Phase,
    Run,
    drive,
    key_of,
    keys_with,
    refusal_of,
)
from aerobee.console.messages.history import REDRIVEN
from aerobee.protocol.message.record import Record, decode_all
from hypothesis import given, settings
from hypothesis import strategies as st

from ...client.fakes import record

LETTERS = 6


class Killed(BaseException):
    """The process ends here."""


def letters(keys: bytes = b"k") -> list[Record]:
    return [
        decode_all(record(n, b"%d" % n, "%DLQ%g", b"KEYS\x01" + keys + b"\x02"))[0]
        for n in range(LETTERS)
    ]


class Broker:
    """A topic, and faults by the number of the step. `indexes`: keys are found at once."""

    def __init__(self, *, indexes: bool = True) -> None:
        self.stored: list[str] = []
        self.indexes = indexes
        self.step = 0
        self.killed_at = -1
        self.fails: dict[str, AerobeeError] = {}
        self.asked: list[str] = []

    def tick(self) -> None:
        self.step += 1
        if self.step == self.killed_at:
            raise Killed

    async def topic_for(self, letter: Record) -> str:
        self.tick()
        return "%RETRY%g"

    async def send(self, letter: Record, topic: str, keys: str) -> None:
        self.tick()
        wrong = self.fails.get(letter.offset_id)
        if isinstance(wrong, BrokerError):
            raise wrong
        self.stored.append(keys.split(" ")[-1])
        self.tick()
        if wrong is not None:
            raise wrong

    async def is_there(self, letter: Record, topic: str, key: str) -> bool:
        self.tick()
        self.asked.append(letter.offset_id)
        return self.indexes and key in self.stored


class Paper(Ledger):
    """A ledger that may be killed before a line, in it, and after it."""

    broker: Broker

    def _append(self, row: dict[str, Any]) -> None:
        self.broker.tick()
        try:
            self.broker.tick()
        except Killed:
            with self.path.open("ab") as file:
                file.write(b'{"letter": "torn')
            raise
        super()._append(row)
        self.broker.tick()


async def run(
    folder: Path, broker: Broker, found: list[Record], *, again: bool = False
) -> tuple[Run, Paper]:
    async def each() -> AsyncIterator[Record]:
        for one in found:
            yield one

    async def no_pause(_: float) -> None: ...

    ledger = Paper(folder, "main", "g", "the group only")
    ledger.broker = broker
    one = Run("main", "g", "the group only", len(found), str(ledger.path))
    await drive(
        each(), broker, ledger, one, rate=10, is_retry=True, unknown_again=again, pause=no_pause
    )
    return one, ledger


@settings(max_examples=150, deadline=None)
@given(kills=st.lists(st.integers(1, 60), max_size=4), indexes=st.booleans())
async def test_killed_anywhere_each_is_sent_once_or_said_to_be_unknown(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], indexes: bool
) -> None:
    folder = tmp_path_factory.mktemp("redrives")
    broker = Broker(indexes=indexes)
    found = letters()
    for kill in kills:
        broker.step, broker.killed_at = 0, kill
        with suppress(Killed):
            await run(folder, broker, found)
    broker.killed_at = -1
    last, ledger = await run(folder, broker, found)
    counts = Counter(broker.stored)
    assert max(counts.values(), default=0) <= 1  # none twice
    unknown = {ident for ident, state in ledger.states.items() if state == "unknown"}
    unsent = {one.offset_id for one in found if key_of(one) not in counts}
    assert unsent <= unknown  # what is not there is said
    assert last.counts.unknown == len(unknown)
    if indexes:
        # What is not found by its key was not sent, or is said to be unknown.
        assert not unknown - unsent
    assert last.phase is Phase.ENDED
    assert last.counts.sent + last.counts.skipped + last.counts.unknown == LETTERS
    final, _ = await run(folder, broker, found, again=True)
    assert final.counts.unknown == 0
    assert set(broker.stored) == {key_of(one) for one in found}


async def test_a_send_without_an_answer_is_unknown_and_a_refusal_is_tried_by_the_next_run(
    tmp_path: Path,
) -> None:
    broker = Broker(indexes=False)
    found = letters()
    broker.fails[found[1].offset_id] = NoAnswerError("no answer within 15 s")
    broker.fails[found[2].offset_id] = BrokerError(14, "busy", "a:1", "send")
    first, _ = await run(tmp_path, broker, found)
    assert (first.counts.sent, first.counts.unknown, first.counts.refused) == (4, 1, 1)
    broker.fails.clear()
    again, ledger = await run(tmp_path, broker, found)
    assert (again.counts.sent, again.counts.unknown, again.counts.skipped) == (1, 1, 4)
    assert ledger.states[found[1].offset_id] == "unknown"
    broker.indexes = True
    final, _ = await run(tmp_path, broker, found)
    assert (final.counts.sent, final.counts.unknown, final.counts.skipped) == (0, 0, 6)
    assert max(Counter(broker.stored).values()) == 1


async def test_another_console_finds_copies_by_their_keys(tmp_path: Path) -> None:
    broker = Broker()
    await run(tmp_path / "one", broker, letters())
    second, _ = await run(tmp_path / "two", broker, letters())
    assert (second.counts.sent, second.counts.skipped) == (0, LETTERS)


async def test_a_run_ends_after_many_failures_and_when_it_is_stopped(tmp_path: Path) -> None:
    broker = Broker()
    many = letters() * 5
    for one in many:
        broker.fails[one.offset_id] = BrokerError(14, "busy", "a:1", "send")
    ended, _ = await run(tmp_path, broker, many)
    assert (ended.phase, ended.counts.refused) == (Phase.STOPPED, FAILURES_MAX)
    assert "failed one after another" in (ended.why or "")

    async def each() -> AsyncIterator[Record]:
        for n, one in enumerate(letters()):
            if n == 2:
                stopped.stop()
            yield one

    async def no_pause(_: float) -> None: ...

    stopped = Run("main", "g", "x", LETTERS, "")
    ledger = Ledger(tmp_path / "other", "main", "g", "x")
    await drive(each(), Broker(), ledger, stopped, rate=10, is_retry=True, pause=no_pause)
    assert (stopped.phase, stopped.counts.sent) == (Phase.STOPPED, 2)


async def test_letters_that_cannot_be_read_on_end_it_with_the_reason(tmp_path: Path) -> None:
    async def each() -> AsyncIterator[Record]:
        yield letters()[0]
        raise ClientError("the broker is away")

    async def no_pause(_: float) -> None: ...

    one = Run("main", "g", "x", LETTERS, "")
    ledger = Ledger(tmp_path, "main", "g", "x")
    await drive(each(), Broker(), ledger, one, rate=10, is_retry=True, pause=no_pause)
    assert (one.phase, one.counts.sent) == (Phase.STOPPED, 1)
    assert "the broker is away" in (one.why or "")


def test_a_copy_has_one_key_of_a_letter_and_one_without_room_is_refused() -> None:
    (letter, *_) = letters(f"k {REDRIVEN}OLD".encode())
    key = key_of(letter)
    assert keys_with(letter, key) == f"k {key}"
    assert refusal_of(letter, is_retry=True) is None
    (long, *_) = letters(b"k" * 32_740)
    assert "properties would have" in (refusal_of(long, is_retry=True) or "")
