"""Clients whose messages come later: transactions, delays and timers, and what must hold of them.

A committed message comes at least once, one that was rolled back never. A delayed message that was
acknowledged comes at least once, and never before its time.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

from aerobee.client import (
    Consumer,
    Message,
    ReceivedMessage,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from aerobee.client.errors import AerobeeError

TOPICS = ("transactions", "delays")
PAUSE_SECONDS = 1.0  # between two messages, at most
LEVELS_SECONDS = {1: 1.0, 2: 5.0}  # of messageDelayLevel
TIMER_SECONDS = 8.0  # of a timer message, at most
EARLY_MS = 1_000  # of a timer message: timerPrecisionMs
OUTCOMES = (TransactionState.COMMIT, TransactionState.COMMIT, TransactionState.ROLLBACK)


class Scheduled:
    """One producer of both kinds, its consumers, and `faults`."""

    def __init__(self, name_servers: str, seed: int, now_ms: Callable[[], int]) -> None:
        self.faults: list[str] = []
        self._name_servers = name_servers
        self._draw = Random(f"scheduled {seed}")
        self._now_ms = now_ms
        self._is_over = False
        self._count = 0
        self._outcomes: dict[bytes, TransactionState] = {}  # what a check says
        self._due: dict[bytes, int] = {}  # the earliest time of a delayed message
        self._promised: dict[bytes, str] = {}  # the broker that has it
        self._got: dict[bytes, None] = {}

    def end(self) -> None:
        """Send nothing more."""
        self._is_over = True

    def missing(self, but: str = "") -> list[str]:
        """The messages that were promised and have not come, but those of this broker."""
        return [
            body.decode()
            for body, broker in self._promised.items()
            if body not in self._got and broker != but
        ]

    async def produce(self) -> None:
        """Send messages of both kinds until `end`."""
        producer = TransactionProducer(
            self._name_servers, group="deciders", check=self._check, tries=1
        )
        async with producer:
            while not self._is_over:
                await asyncio.sleep(self._draw.random() * PAUSE_SECONDS)
                with suppress(AerobeeError):
                    if self._draw.random() < 0.5:
                        await self._transaction(producer)
                    else:
                        await self._delay(producer)
            await asyncio.Event().wait()  # it answers checks

    async def consume(self, topic: str) -> None:
        """Take the messages of one topic, for ever."""
        consumer = Consumer(
            self._name_servers, group=f"{topic}-group", topics=[topic], start="earliest"
        )
        async with consumer:
            async for message in consumer:
                async with message.process():
                    self._delivered(message)

    async def _transaction(self, producer: TransactionProducer) -> None:
        body = self._body("transaction")
        outcome = self._outcomes[body] = self._draw.choice(OUTCOMES)
        # One in three is left to a check.
        told = TransactionState.UNKNOWN if self._draw.random() < 0.3 else outcome
        receipt, _ = await producer.send_in_transaction(
            Message("transactions", body), lambda message: told, timeout=3
        )
        if receipt.status is SendStatus.OK and outcome is TransactionState.COMMIT:
            self._promised[body] = receipt.queue.broker_name
        elif receipt.status is not SendStatus.OK:
            del self._outcomes[body]  # the client has rolled it back, and it may be lost

    async def _delay(self, producer: TransactionProducer) -> None:
        body = self._body("delay")
        level = self._draw.choice((0, *LEVELS_SECONDS))
        seconds = LEVELS_SECONDS.get(level, 0.0) or 1 + self._draw.random() * TIMER_SECONDS
        self._due[body] = self._now_ms() + int(seconds * 1_000) - (0 if level else EARLY_MS)
        message = (
            Message("delays", body, delay_level=level)
            if level
            else Message("delays", body, delay=seconds)
        )
        receipt = await producer.send(message, timeout=3)
        if receipt.status is SendStatus.OK:
            self._promised[body] = receipt.queue.broker_name

    def _body(self, kind: str) -> bytes:
        self._count += 1
        return f"{kind} {self._count}".encode()

    async def _check(self, message: object) -> TransactionState:
        body: bytes = getattr(message, "body", b"")
        return self._outcomes.get(body, TransactionState.ROLLBACK)

    def _delivered(self, message: ReceivedMessage) -> None:
        body = message.body
        self._got[body] = None
        if body in self._due and self._now_ms() < self._due[body]:
            early = self._due[body] - self._now_ms()
            self.faults.append(f"{body.decode()} came {early} ms before its time")
        outcome = self._outcomes.get(body)
        if outcome is TransactionState.ROLLBACK:
            self.faults.append(f"{body.decode()} was rolled back, and came")
