"""Redrive: dead letters of a group are sent again, each once.

A letter goes to the group's retry topic, which no other group reads, or to a topic. Its copy has
the key `redriven:OFFSET_ID`, by which a later run finds it at the broker. Before a send the ledger
gets a line, and after it another. A letter whose send had no answer is searched by its key. If the
key is not found, either, the letter stays unknown until a visitor has it sent once more.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ...client.admin.dead_letters import origin_of, without_deliveries
from ...client.base.identity import now_ms
from ...client.errors import AerobeeError, BrokerError
from ...protocol.message import properties as props
from ...protocol.message.record import Record
from ..messages.history import REDRIVEN
from ..texts import Text, counted, joined, text_of
from .action import State, state_of
from .ledger import REFUSED, SENDING, SENT, UNKNOWN, Ledger

FAILURES_MAX = 20  # one after another, before a run ends itself
RATE_MAX = 5_000  # messages a second
RESULTS_SHOWN = 200  # of a run, on its page; the file has all

Pause = Callable[[float], Awaitable[None]]


class Post(Protocol):
    """Sends letters to their topics."""

    async def topic_for(self, letter: Record) -> str:
        """The topic to send a letter to; AerobeeError where there is none."""

    async def send(self, letter: Record, topic: str, keys: str) -> None:
        """Send a letter with one request."""

    async def is_there(self, letter: Record, topic: str, key: str) -> bool:
        """True if the topic has a message with this key, so the letter was sent."""


class Phase(StrEnum):
    """The phase of a run."""

    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(slots=True)
class Counts:
    """The numbers of a run's letters by their result."""

    sent: int = 0
    skipped: int = 0
    refused: int = 0
    unknown: int = 0


@dataclass(slots=True)
class Run:
    """One run of a redrive, and what its page shows. `why` says why it ended early."""

    cluster: str
    group: str
    target: str
    total: int
    file: str
    ident: str = field(default_factory=lambda: secrets.token_hex(8))
    phase: Phase = Phase.RUNNING
    why: str | None = None
    counts: Counts = field(default_factory=Counts)
    results: list[tuple[str, str, str]] = field(default_factory=list)
    is_wanted: bool = True
    begun_ms: int = field(default_factory=now_ms)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sentence(self) -> Text:
        """What became of its letters."""
        counts = self.counts
        parts = [
            counted(
                self.total,
                "%(sent)s of 1 dead letter sent",
                "%(sent)s of %(count)s dead letters sent",
                sent=f"{counts.sent:,}",
            )
        ]
        if counts.skipped:
            parts.append(
                counted(
                    counts.skipped,
                    "1 was sent before and is skipped",
                    "%(count)s were sent before and are skipped",
                )
            )
        if counts.refused:
            parts.append(counted(counts.refused, "1 refused", "%(count)s refused"))
        if counts.unknown:
            parts.append(counted(counts.unknown, "1 unknown: look", "%(count)s unknown: look"))
        return joined(", ", parts)

    def stop(self) -> None:
        """End after the letter in hand."""
        self.is_wanted = False

    def note(self, letter: str, state: str, remark: str) -> None:
        """Keep a result for the page."""
        if len(self.results) < RESULTS_SHOWN:
            self.results.append((letter, state, remark))


def key_of(letter: Record) -> str:
    """The key of a letter's copy."""
    return REDRIVEN + letter.offset_id


def keys_with(letter: Record, key: str) -> str:
    """The keys of a copy: the letter's, without those of earlier copies."""
    had = letter.properties.get(props.KEYS, "").split(props.KEY_SEPARATOR)
    return props.KEY_SEPARATOR.join(
        [one for one in had if one and not one.startswith(REDRIVEN)] + [key]
    )


def refusal_of(letter: Record, *, is_retry: bool) -> str | None:
    """The reason why a letter can't be sent again as it is, None if it can."""
    if not letter.is_body_intact:
        return Text("its body is not what was sent: the checksum is wrong")
    pairs = without_deliveries(letter.properties, original=not is_retry)
    pairs[props.KEYS] = keys_with(letter, key_of(letter))
    size = len(props.encode(pairs))
    if size > props.PROPERTIES_BYTES_MAX:
        return Text(
            "its properties would have %(size)s bytes with its key, the limit is %(limit)s",
            size=f"{size:,}",
            limit=f"{props.PROPERTIES_BYTES_MAX:,}",
        )
    return None


def origin(letter: Record, group: str) -> str:
    """The topic that a letter was sent to first."""
    return origin_of(letter, group)


async def drive(
    letters: AsyncIterator[Record],
    post: Post,
    ledger: Ledger,
    run: Run,
    *,
    rate: float,
    is_retry: bool,
    unknown_again: bool = False,
    pause: Pause = asyncio.sleep,
) -> None:
    """Send each letter that was not sent before, `rate` a second at most."""
    ledger.read()
    ledger.open()
    failures = 0
    try:
        async for letter in letters:
            if not run.is_wanted:
                run.phase = Phase.STOPPED
                return
            state = await _one(letter, post, ledger, run, is_retry, unknown_again)
            if state in (REFUSED, UNKNOWN):
                failures += 1
                if failures >= FAILURES_MAX:
                    run.phase = Phase.STOPPED
                    run.why = Text(
                        "%(count)s letters failed one after another; look at the brokers",
                        count=failures,
                    )
                    return
            elif state == SENT:
                failures = 0
                await pause(1 / rate)
        run.phase = Phase.ENDED
    except AerobeeError as wrong:
        run.phase, run.why = (
            Phase.STOPPED,
            Text("the dead letters can't be read on: %(wrong)s", wrong=wrong),
        )
    finally:
        if run.phase is Phase.RUNNING:
            run.phase, run.why = Phase.STOPPED, Text("it was ended from outside; run it again")
        ledger.close()


async def _one(
    letter: Record, post: Post, ledger: Ledger, run: Run, is_retry: bool, unknown_again: bool
) -> str | None:
    """Send one letter; returns its state, None if it was skipped."""
    ident, key = letter.offset_id, key_of(letter)
    had = ledger.states.get(ident)
    if had == SENT:
        run.counts.skipped += 1
        return None
    wrong = refusal_of(letter, is_retry=is_retry)
    if wrong is not None:
        return _failed(ledger, run, ident, REFUSED, wrong)
    try:
        topic = await post.topic_for(letter)
        if await post.is_there(letter, topic, key):
            ledger.write(ident, SENT, how="found by its key", topic=topic)
            run.counts.skipped += 1
            return None
    except AerobeeError as fault:
        # A letter that may have been sent stays so.
        state = UNKNOWN if had in (SENDING, UNKNOWN) else REFUSED
        return _failed(ledger, run, ident, state, text_of(fault))
    if had in (SENDING, UNKNOWN) and not unknown_again:
        return _failed(
            ledger,
            run,
            ident,
            UNKNOWN,
            Text(
                "an earlier send had no answer, and its key is not found: look, then run with "
                "unknown ones sent again"
            ),
        )
    ledger.write(ident, SENDING, topic=topic, at_ms=now_ms())
    try:
        await post.send(letter, topic, keys_with(letter, key))
    except BrokerError as fault:
        return _failed(ledger, run, ident, REFUSED, text_of(fault))
    except AerobeeError as fault:
        state, remark = state_of(fault)
        word = UNKNOWN if state is State.UNKNOWN else REFUSED
        return _failed(ledger, run, ident, word, remark)
    ledger.write(ident, SENT, topic=topic, at_ms=now_ms())
    run.counts.sent += 1
    run.note(ident, SENT, topic)
    return SENT


def _failed(ledger: Ledger, run: Run, ident: str, state: str, remark: str) -> str:
    ledger.write(ident, state, remark=remark, at_ms=now_ms())
    if state == UNKNOWN:
        run.counts.unknown += 1
    else:
        run.counts.refused += 1
    run.note(ident, state, remark)
    return state
