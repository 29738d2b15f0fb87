"""A group that pops like its clients: requests, and handles built from responses."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pop import AckMessage, ChangeInvisibleTime, PopMessage
from aerobee.protocol.message.pop_handles import handle, parse_handle, real_topic
from aerobee.protocol.message.record import Record, decode_all

from ..clocks import Clock
from ..waiting import until
from .conftest import Caller

INVISIBLE_MS = 30_000
BACK_AFTER_MS = INVISIBLE_MS + 4_000  # unacknowledged messages are redelivered by then


class Popper:
    """One client of a group. The topic is created with `queues` queues."""

    def __init__(
        self,
        broker: Broker,
        caller: Caller,
        clock: Clock,
        *,
        topic: str = "T",
        group: str = "cg",
        queues: int = 1,
    ) -> None:
        self.broker = broker
        self.caller = caller
        self.clock = clock
        self.topic = topic
        self.group = group
        if broker.topics.get(topic) is None:
            broker.topics.put(TopicConfig(topic, queues, queues))

    async def send(self, *bodies: bytes, queue_id: int = 0, **pairs: str) -> None:
        for body in bodies:
            answer = await self.caller.send(self.topic, body, queue_id=queue_id, pairs=pairs)
            assert answer.code == 0, answer

    async def ask(self, **wanted: Any) -> Command:
        """The response to a pop; keywords replace this client's usual fields."""
        usual: dict[str, Any] = {
            "group": self.group,
            "topic": self.topic,
            "queue_id": -1,
            "max_messages": 32,
            "invisible_ms": INVISIBLE_MS,
            "poll_ms": 0,
            "init_mode": 0,
            "born_ms": self.clock.ms,
        }
        return await self.caller.ask(codes.POP_MESSAGE, PopMessage(**(usual | wanted)))

    async def pop(self, **wanted: Any) -> dict[bytes, str]:
        """Pops; returns the handle of each body."""
        return self.handles(await self.ask(**wanted))

    def handles(self, answer: Command) -> dict[bytes, str]:
        """The handle of each body in a response, in order, as a Java client builds it."""
        if answer.code in (codes.POLLING_TIMEOUT, codes.POLLING_FULL):
            return {}
        assert answer.code == 0, (answer.code, answer.remark)
        fields = answer.fields()
        starts = {tuple(e.split(" ")[:2]): e for e in fields["startOffsetInfo"].split(";")}
        found = {}
        for record in decode_all(answer.body or b""):
            text = record.properties.get("POP_CK")
            if text is None:
                start = starts["0", str(record.queue_id)].split(" ")[2]
                text = handle(
                    int(start),
                    int(fields["popTime"]),
                    int(fields["invisibleTime"]),
                    int(fields["reviveQid"]),
                    "0",
                    self.broker.config.broker_name,
                    record.queue_id,
                    record.queue_offset,
                )
            found[record.body] = text
        return found

    async def ack(self, text: str, **wanted: Any) -> Command:
        """Acknowledge the message of a handle; keywords replace the fields of the handle."""
        return await self.caller.ask(codes.ACK_MESSAGE, AckMessage(**self._of(text, wanted)))

    async def change(self, text: str, invisible_ms: int, **wanted: Any) -> Command:
        """Make the message of a handle invisible for `invisible_ms` from now on."""
        fields = self._of(text, wanted)
        header = ChangeInvisibleTime(**fields, invisible_ms=invisible_ms)
        return await self.caller.ask(codes.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def later(self, ms: int) -> None:
        """Advance the clock by `ms` and let the broker do the work that is due."""
        self.clock.ms += ms
        await self.broker.catch_up()
        await self.synced()
        self.broker.pop.sweep()

    async def synced(self) -> None:
        """Sync the log to disk."""
        plan = self.broker.store.sync_plan()
        if plan is not None:
            await asyncio.to_thread(plan.run)
            self.broker.store.synced(plan)

    def offset(self, topic: str | None = None, queue_id: int = 0) -> int:
        """The group's committed offset in a queue."""
        return self.broker.offsets.get(topic or self.topic, self.group, queue_id)

    async def waiting(self, count: int) -> None:
        """Returns once `count` pops and notifications wait."""
        handlers = self.broker.pop.handlers
        await until(lambda: handlers.polls.count + handlers.notifications.count >= count)

    def _of(self, text: str, wanted: dict[str, Any]) -> dict[str, Any]:
        each = parse_handle(text)
        usual = {
            "group": self.group,
            "topic": real_topic(self.topic, self.group, each.retry),
            "queue_id": each.queue_id,
            "extra_info": text,
            "offset": each.offset,
        }
        return usual | wanted


def records(answer: Command) -> list[Record]:
    """The messages in an answer."""
    return decode_all(answer.body or b"")


def crashed(broker: Broker, folder: Path) -> dict[str, str]:
    """Copies the store as a kill would leave it; returns settings for a broker on the copy."""
    broker.store.write_staged()
    shutil.copytree(broker.root, folder, ignore=shutil.ignore_patterns("lock"))
    return {"store_path_root_dir": str(folder)}
