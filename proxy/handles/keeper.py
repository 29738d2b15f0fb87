"""The newest handles of messages that clients work on, and their renewal.

A push consumer lets the proxy keep its messages invisible. Until one is acknowledged, changed or
forwarded, its handle is renewed: each renewal makes a new handle, which the client doesn't know.
A handle that the client itself changed is remembered until its time is up, and not renewed, because
the client wants the message back then.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...client.cluster.cluster import every
from ..messages.status import Code, StatusError
from ..routes.brokers import Brokers
from ..routes.topics import Topics
from ..settings.config import ProxyConfig
from .popped import Popped
from .receipt import Receipt

log = logging.getLogger(__name__)

HANDLES_MAX = 200_000  # of all clients
RENEWALS_MAX = 200  # at once
# How long each renewal keeps a message invisible; the last one repeats. In ms.
STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
DELAYS_MS = (
    1_000,
    5_000,
    10_000,
    30_000,
    60_000,
    120_000,
    180_000,
    240_000,
    300_000,
    360_000,
    420_000,
    480_000,
    540_000,
    600_000,
    1_200_000,
    1_800_000,
    3_600_000,
    7_200_000,
)  # of a group's retries by default
RETRIES_BEFORE = 2  # a first retry waits for the third delay

Key = tuple[str, str, str, str, int, int]


@dataclass(slots=True, eq=False)
class Kept:
    """One message: its newest handle, and how its renewal stands. Times in ms."""

    client_id: str
    group: str
    topic: str
    message_id: str
    receipt: Receipt
    first_pop_ms: int
    attempt: int
    renews: bool
    times: int = 0
    failures: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def key(self) -> Key:
        return (self.client_id, self.group, self.message_id, *self.receipt.place)


class Others(Protocol):
    """The other workers of this proxy."""

    def keeps(self, client_id: str) -> None:
        """Announce that this worker keeps a handle of this client."""

    async def take(
        self,
        client_id: str,
        group: str = "",
        message_id: str = "",
        place: tuple[str, int, int] | None = None,
    ) -> list[Kept]:
        """Take over the handles of a client, or of one message, from other workers."""


class Keeper:
    """The kept handles of all clients of this proxy."""

    def __init__(
        self, brokers: Brokers, topics: Topics, popped: Popped, config: ProxyConfig
    ) -> None:
        self._brokers = brokers
        self._topics = topics
        self._popped = popped
        self._config = config
        self._kept: dict[Key, Kept] = {}
        self._of_client: dict[str, set[Key]] = {}
        self._rounds: asyncio.Task[None] | None = None
        self._at_once = asyncio.Semaphore(RENEWALS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self.others: Others | None = None
        self.renewals = 0
        self.failures = 0

    def __len__(self) -> int:
        return len(self._kept)

    def start(self) -> None:
        """Begin to renew."""
        seconds = self._config.renew_schedule_period_millis / 1_000
        work = every(seconds, self.renew_due, "renewing handles")
        self._rounds = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        """Make all messages visible soon."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        await asyncio.gather(*(self.release(client_id) for client_id in list(self._of_client)))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def keep(
        self,
        client_id: str,
        group: str,
        topic: str,
        message_id: str,
        receipt: Receipt,
        *,
        attempt: int,
        renews: bool = True,
    ) -> None:
        """Remember a handle and, with `renews`, keep its message invisible."""
        now = self._brokers.now_ms()
        self._put(Kept(client_id, group, topic, message_id, receipt, now, attempt, renews))

    def find(self, client_id: str, group: str, message_id: str, receipt: Receipt) -> Kept | None:
        """The kept message that a handle of a client means."""
        return self._kept.get((client_id, group, message_id, *receipt.place))

    async def find_anywhere(
        self, client_id: str, group: str, message_id: str, receipt: Receipt
    ) -> Kept | None:
        """The same; another worker hands over what it keeps."""
        found = self.find(client_id, group, message_id, receipt)
        if found is None and self.others is not None:
            for kept in await self.others.take(client_id, group, message_id, receipt.place):
                self._put(kept)
            found = self.find(client_id, group, message_id, receipt)
        return found

    async def fetch(self, client_id: str) -> None:
        """A client has come here: take over what other workers keep of it."""
        if self.others is not None:
            for kept in await self.others.take(client_id):
                self._put(kept)

    def has_handles(self, client_id: str) -> bool:
        """True if any handle of this client is kept here."""
        return client_id in self._of_client

    async def give_all(self, client_id: str, most: int) -> list[Kept]:
        """Up to `most` handles of a client, which are not kept here any longer."""
        keys = list(self._of_client.get(client_id, ()))[:most]
        return [kept for key in keys for kept in await self.give_one(key)]

    async def give_one(self, key: Key) -> list[Kept]:
        """One handle if it is here, which is not kept here any longer."""
        kept = self._kept.get(key)
        if kept is None:
            return []
        async with kept.lock:  # a renewal under way ends before
            if self._kept.get(key) is not kept:
                return []
            self.drop(kept)
            return [kept]

    def drop(self, kept: Kept) -> None:
        """Forget a handle: its message is acknowledged, or visible again."""
        self._kept.pop(kept.key, None)
        keys = self._of_client.get(kept.client_id)
        if keys is not None:
            keys.discard(kept.key)
            if not keys:
                del self._of_client[kept.client_id]

    async def ack(
        self, client_id: str, group: str, topic: str, message_id: str, receipt: Receipt
    ) -> None:
        """Acknowledge with the newest handle. It is forgotten once that is answered."""
        kept = await self.find_anywhere(client_id, group, message_id, receipt)
        if kept is None:
            await self._popped.ack(group, topic, receipt)
            return
        async with kept.lock:
            await self._popped.ack(group, topic, kept.receipt)
            self.drop(kept)

    async def change(
        self, client_id: str, group: str, topic: str, message_id: str, receipt: Receipt, ms: int
    ) -> Receipt:
        """Change with the newest handle; the new handle, which is remembered."""
        kept = await self.find_anywhere(client_id, group, message_id, receipt)
        if kept is None:
            new = await self._popped.change(group, topic, receipt, ms)
            self.keep(client_id, group, topic, message_id, new, attempt=1, renews=False)
            return new
        async with kept.lock:
            kept.receipt = await self._popped.change(group, topic, kept.receipt, ms)
            kept.renews = False
            return kept.receipt

    async def forward(
        self, client_id: str, group: str, topic: str, message_id: str, receipt: Receipt
    ) -> None:
        """Put the message into the dead letter topic with the newest handle."""
        kept = await self.find_anywhere(client_id, group, message_id, receipt)
        if kept is None:
            await self._popped.forward(group, topic, receipt, message_id)
            return
        async with kept.lock:
            await self._popped.forward(group, topic, kept.receipt, message_id)
            self.drop(kept)

    async def release(self, client_id: str, group: str | None = None) -> None:
        """Make the messages of a client visible soon, because it is gone."""
        keys = [
            key for key in self._of_client.get(client_id, ()) if group is None or key[1] == group
        ]
        await asyncio.gather(*(self._release(self._kept[key]) for key in keys))

    def release_soon(self, client_id: str, group: str, message_id: str, receipt: Receipt) -> None:
        """Make one message that is renewed visible soon, because its client may not have it."""
        self._spawn(self._release_anywhere(client_id, group, message_id, receipt))

    def give_back_soon(self, group: str, topic: str, receipts: Iterable[Receipt]) -> None:
        """Make messages visible soon that no client got."""
        for each in receipts:
            self._spawn(self._visible_soon(group, topic, each))

    async def renew_due(self) -> None:
        """Renew the handles of messages that become visible soon; forget those that are over."""
        now, ahead = self._brokers.now_ms(), self._config.renew_ahead_time_millis
        due = []
        for kept in list(self._kept.values()):
            left = kept.receipt.visible_ms - now
            if kept.renews and left <= ahead:
                due.append(kept)
            elif left <= 0:
                self.drop(kept)
        await asyncio.gather(*(self._renew(kept) for kept in due))

    # --- inside ---------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _put(self, kept: Kept) -> None:
        if len(self._kept) >= HANDLES_MAX:
            log.warning(
                "%d handles are kept, which is the limit; one of client %s is not renewed",
                HANDLES_MAX,
                kept.client_id,
            )
            return
        self._kept[kept.key] = kept
        self._of_client.setdefault(kept.client_id, set()).add(kept.key)
        if self.others is not None:
            self.others.keeps(kept.client_id)

    async def _renew(self, kept: Kept) -> None:
        async with self._at_once, kept.lock:
            if self._kept.get(kept.key) is not kept or not kept.renews:
                return
            age = self._brokers.now_ms() - kept.first_pop_ms
            is_last = age >= self._config.renew_max_time_millis
            try:
                ms = await self._retry_delay(kept) if is_last else _step(kept.times)
                kept.receipt = await self._popped.change(kept.group, kept.topic, kept.receipt, ms)
            except StatusError as wrong:
                kept.failures += 1
                self.failures += 1
                is_final = wrong.code == Code.INVALID_RECEIPT_HANDLE
                if is_final or kept.failures >= self._config.max_renew_retry_times:
                    log.warning(
                        "message %s of group %s is not kept invisible any longer: %s",
                        kept.message_id,
                        kept.group,
                        wrong.message,
                    )
                    self.drop(kept)
                return
            self.renewals += 1
            kept.failures = 0
            kept.times += 1
            if is_last:
                kept.renews = False

    async def _retry_delay(self, kept: Kept) -> int:
        policy = (await self._topics.group(kept.group)).group_retry_policy
        at = max(0, kept.attempt - 1)
        if policy.type == "EXPONENTIAL" and policy.exponential_retry_policy is not None:
            rule = policy.exponential_retry_policy
            return min(rule.max, rule.initial * int(rule.multiplier ** min(at, 32)))
        custom = policy.customized_retry_policy
        delays = custom.next if custom is not None and custom.next else DELAYS_MS
        return delays[min(at + RETRIES_BEFORE, len(delays) - 1)]

    async def _release(self, kept: Kept) -> None:
        async with kept.lock:
            if self._kept.get(kept.key) is not kept:
                return
            self.drop(kept)
            if kept.renews:
                await self._visible_soon(kept.group, kept.topic, kept.receipt)

    async def _release_anywhere(
        self, client_id: str, group: str, message_id: str, receipt: Receipt
    ) -> None:
        # The client may have come to another worker meanwhile, and that one renews it now.
        kept = await self.find_anywhere(client_id, group, message_id, receipt)
        if kept is not None and kept.renews:
            await self._release(kept)

    async def _visible_soon(self, group: str, topic: str, receipt: Receipt) -> None:
        try:
            async with self._at_once:
                ms = self._config.invisible_time_mills_when_clear
                await self._popped.change(group, topic, receipt, ms)
        except StatusError as wrong:
            log.info("message at %s stays invisible for its time: %s", receipt.place, wrong.message)


def _step(times: int) -> int:
    return STEPS_MS[min(times, len(STEPS_MS) - 1)]
