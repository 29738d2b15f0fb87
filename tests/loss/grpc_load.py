"""gRPC clients that send and receive while servers fail, and what they were told.

Three topics with one queue each: Normal, Ordered (two message groups, read by a group in order) and
Paid (transactions). `Load.faults` says what can't be true at once:

- an acknowledged message is lost, or was never delivered to a group;
- a message comes again in a receive that began after its acknowledgement was answered;
- a group in order gets a message before all those ahead of it;
- a committed message is missing, a rolled back one is delivered.

What a kill -9 of the broker undoes is not held against it: its offsets, those of its check points
too, are on disk every few seconds, so groups see messages from before it again. Neither is a
message that was received or acknowledged while something failed: as in RocketMQ an acknowledgement
is answered OK that comes after the broker has made the message visible, or crosses the proxy that
gives back what its answer may not have brought to the client.

An acknowledgement whose answer was lost may have been done, and the message never comes again. So
`Load.drained` asks the broker as well: no group may have a message left, delivered or not.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from aerobee.client import Admin
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.message.record import decode_all
from aerobee.proxy.messages.status import Code

from ..proxy.support import CLIENT_TYPES, TYPES, Client, new, resource
from ..waiting import PROCESS, until
from .ledger import Ledger

NORMAL, ORDERED, PAID = "Normal", "Ordered", "Paid"
TOPICS = {NORMAL: "NORMAL", ORDERED: "FIFO", PAID: "TRANSACTION"}
# By group its topic, and whether the proxy renews what it gets.
GROUPS = {"simple": (NORMAL, False), "pushed": (NORMAL, True), "ordered": (ORDERED, False)}
GROUPS["paid"] = PAID, False
HALF_TOPIC, HALF_GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
SENDERS = {NORMAL: 2, ORDERED: 2, PAID: 1}
READERS = 2  # of each group
CALL_SECONDS = 3.0  # of a send, an ack, an end
INVISIBLE_SECONDS = 5
BATCH = 8
BACKLOG = 100  # messages of a topic that a group has not acknowledged: senders wait
SENDER_SECONDS = 0.02  # between two messages: the load leaves time for others
PAUSE_SECONDS = 0.05  # after a call that failed
COMMIT, ROLLBACK, SERVER_CHECK = 1, 2, 2
# What a client sees of a server or a connection that is gone.
LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


def is_committed(body: str) -> bool:
    """True if a transaction is to be committed; every second one is."""
    return int(body.rpartition(" ")[2]) % 2 == 0


@dataclass(slots=True)
class Read:
    """The messages that a group has seen. Times of the loop, in s."""

    acknowledged: dict[str, float] = field(default_factory=dict)  # when the answer came
    unsure: set[str] = field(default_factory=set)  # acknowledged since they came, and not answered
    tried: set[str] = field(default_factory=set)  # acknowledgements on their way or answered
    seen: set[str] = field(default_factory=set)
    forgiven: set[str] = field(default_factory=set)  # may come again once acknowledged
    batches: list[tuple[frozenset[str], list[str]]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    again: int = 0
    has_left_one: bool = False  # without an acknowledgement, so that it comes again

    def done(self) -> set[str]:
        """The bodies that need not come again."""
        return self.acknowledged.keys() | self.unsure


class Load:
    """The clients of one farm; they dial `port`."""

    def __init__(self, name_server: str, broker: str, port: int) -> None:
        self.ledger = Ledger()
        self.read = {group: Read() for group in GROUPS}
        self.sent: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        self.acknowledged: dict[str, dict[str, int]] = {topic: {} for topic in TOPICS}
        self.checked: set[str] = set()
        self.failed = 0  # calls
        self._why = ""  # the last of them did
        self._progress = asyncio.Condition()
        self._name_server, self._broker, self._port = name_server, broker, port
        self._number = 0
        self._is_sending = True
        self._moment = 0  # odd while something fails
        self._answers: set[asyncio.Task[None]] = set()  # to checks
        self._order: list[str] = []  # bodies of the queue in order

    # ---- what a test waits for

    @property
    def sends(self) -> int:
        return sum(len(bodies) for bodies in self.acknowledged.values())

    async def more_sends(self, count: int) -> None:
        """Wait until this many more sends were acknowledged, and one of each topic."""
        wanted = self.sends + count
        await self._until(
            lambda: self.sends >= wanted and all(self.acknowledged.values()),
            f"{count} more acknowledged sends",
        )

    async def more_failures(self, count: int) -> None:
        """Wait until this many more calls failed."""
        wanted = self.failed + count
        await self._until(lambda: self.failed >= wanted, f"{count} more failed calls")

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Mark that something fails inside."""
        self._moment += 1
        try:
            yield
        finally:
            self._moment += 1

    def forgive_all(self) -> None:
        """Let all messages that are sent by now come again."""
        for group, (topic, _) in GROUPS.items():
            self.read[group].forgiven |= self.sent[topic]

    async def drained(self) -> None:
        """End the senders; wait until all groups have acknowledged all, and all is decided.

        What has come to a group in the meantime counts by its last sign: one that comes again is
        to be acknowledged again.
        """
        self._is_sending = False
        for group, (topic, _) in GROUPS.items():
            read = self.read[group]
            await self._until(
                lambda t=topic, r=read: self._wanted(t) <= r.done(),  # type: ignore[misc]
                f"group {group} to acknowledge all",
            )
        await self._broker_agrees(self._is_all_decided)
        await self._broker_agrees(self._is_nothing_left)

    async def _broker_agrees(self, left: Callable[[], Awaitable[str]]) -> None:
        said = ""

        async def is_nothing() -> bool:
            nonlocal said
            said = await left()
            return not said

        def state() -> str:
            unsure = {group: sorted(read.unsure)[:5] for group, read in self.read.items()}
            return f"{said}; unsure {unsure}"

        await until(is_nothing, state, seconds=PROCESS, pause=PAUSE_SECONDS)

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PROCESS), self._progress:
                await self._progress.wait_for(is_so)
        except TimeoutError:
            acknowledged = {group: len(read.acknowledged) for group, read in self.read.items()}
            sent = {topic: len(bodies) for topic, bodies in self.acknowledged.items()}
            missing = {
                group: sorted(self._wanted(topic) - self.read[group].done())[:5]
                for group, (topic, _) in GROUPS.items()
            }
            raise AssertionError(
                f"missing {missing}; waited {PROCESS:g} s for {what}; sent {sent}, "
                f"acknowledged {acknowledged}, "
                f"{self.failed} calls failed, the last: {self._why}; {self.faults()}"
            ) from None

    async def _note(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    def _wanted(self, topic: str) -> set[str]:
        """The bodies that must be delivered."""
        bodies = self.acknowledged[topic].keys()
        return {body for body in bodies if topic != PAID or is_committed(body)}

    def _has_room(self, topic: str) -> bool:
        groups = [group for group, (its, _) in GROUPS.items() if its == topic]
        slowest = min(len(self.read[group].done()) for group in groups)
        return len(self._wanted(topic)) - slowest < BACKLOG

    # ---- work

    async def prepare(self) -> None:
        """Topics and groups."""
        async with Admin(self._name_server) as admin:
            for topic, kind in TOPICS.items():
                await admin.create_topic(topic, 1, attributes={"message.type": kind})
            for group in GROUPS:
                found = SubscriptionGroupConfig(group, consume_message_orderly=group == "ordered")
                await admin.update_group(found)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All clients at work."""
        works: list[Callable[[Client], Awaitable[None]]] = []
        for topic, count in SENDERS.items():
            works += [lambda c, t=topic, n=n: self._send(c, t, n) for n in range(count)]  # type: ignore[misc]
        for group in GROUPS:
            works += [lambda c, g=group: self._receive(c, g)] * READERS  # type: ignore[misc]
        works += [self._talk] * SENDERS[PAID]
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{self._port}", OPTIONS) for _ in works]
        tasks = [
            asyncio.create_task(self._forever(work, Client(channel, uuid.uuid4().hex)))
            for work, channel in zip(works, channels, strict=True)
        ]
        try:
            yield
        finally:
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *self._answers, return_exceptions=True)
            for channel in channels:
                await channel.close()
            for task in ended:
                task.result()

    async def _forever(self, work: Callable[[Client], Awaitable[None]], client: Client) -> None:
        while True:
            try:
                await work(client)
            except asyncio.InvalidStateError:
                await self._fail("the stream had failed before")
            except grpc.aio.AioRpcError as wrong:
                if wrong.code() not in LOST:
                    raise
                await self._fail(str(wrong.details()))

    async def _fail(self, why: str) -> None:
        self.failed += 1
        self._why = why
        await self._note()
        await asyncio.sleep(PAUSE_SECONDS)

    async def _send(self, client: Client, topic: str, number: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: self._is_sending and self._has_room(topic))
        await asyncio.sleep(SENDER_SECONDS)
        self._number += 1
        body = f"{topic} {number} {self._number}"
        system: dict[str, Any] = {}
        if topic == ORDERED:
            system["message_group"] = f"g{number}"
        elif topic == PAID:
            system["message_type"] = TYPES["TRANSACTION"]
        self.sent[topic].add(body)
        self.ledger.sent(body.encode(), (topic, 0))
        answer = await client.call(
            "SendMessage", seconds=CALL_SECONDS, messages=[_message(topic, body, system)]
        )
        if answer.status.code != Code.OK:
            await self._fail(str(answer.status))
            return
        entry = answer.entries[0]
        self.acknowledged[topic][body] = entry.offset
        if topic != PAID:
            self.ledger.acknowledged(body.encode(), entry.offset)
        await self._note()
        if topic == PAID and len(self.sent[PAID]) % 2 == 0:  # the others are asked about
            await self._end(client, body, entry.transaction_id)

    async def _end(self, client: Client, body: str, transaction: str, source: int = 1) -> None:
        await client.call(
            "EndTransaction",
            seconds=CALL_SECONDS,
            topic=resource(PAID),
            message_id=transaction.rpartition("#")[2],
            transaction_id=transaction,
            resolution=COMMIT if is_committed(body) else ROLLBACK,
            source=source,
        )

    async def _talk(self, client: Client) -> None:
        """A producer's telemetry: it is asked about transactions, and answers."""
        stream = client.telemetry()
        settings = new("Settings", client_type=CLIENT_TYPES["PRODUCER"])
        settings.publishing.topics.add(name=PAID)
        await stream.write(new("TelemetryCommand", settings=settings))
        while (command := await stream.read()) is not grpc.aio.EOF:
            if command.WhichOneof("command") == "recover_orphaned_transaction_command":
                asked = command.recover_orphaned_transaction_command
                body = asked.message.body.decode()
                self.checked.add(body)
                answer = self._end(client, body, asked.transaction_id, SERVER_CHECK)
                self._answers.add(task := asyncio.create_task(self._try(answer)))
                task.add_done_callback(self._answers.discard)

    async def _try(self, call: Coroutine[None, None, None]) -> None:
        with suppress(grpc.aio.AioRpcError):  # the broker asks again
            await call

    async def _receive(self, client: Client, group: str) -> None:
        topic, renews = GROUPS[group]
        read = self.read[group]
        loop = asyncio.get_running_loop()
        began, moment = loop.time(), self._moment
        tried = frozenset(read.tried) if group == "ordered" else frozenset()
        more: dict[str, Any] = {"auto_renew": True} if renews else {}
        if not renews:
            more["invisible_duration"] = {"seconds": INVISIBLE_SECONDS}
        status, found = await client.receive(
            topic,
            group,
            seconds=CALL_SECONDS,
            batch_size=BATCH,
            long_polling_timeout={"seconds": 1},
            **more,
        )
        if not found:
            if status.code != Code.MESSAGE_NOT_FOUND:
                await self._fail(str(status))
            return
        bodies = [each.body.decode() for each in found]
        if group == "ordered":
            read.batches.append((tried | read.tried, bodies))
        wanted, holds_up = [], group == "ordered" or renews
        for body, each in zip(bodies, found, strict=True):
            self._got(read, topic, body, each.system_properties, began)
            # The first one and one of ten are left alone at first, except where that would hold up
            # others for long.
            is_one = not read.has_left_one or int(body.split()[2]) % 10 == 0
            if holds_up or each.system_properties.delivery_attempt > 1 or not is_one:
                wanted.append(each)
            else:
                read.has_left_one = True
        if not wanted:
            return
        read.tried |= {each.body.decode() for each in wanted}
        is_late = False
        while wanted := await self._acknowledge(client, group, wanted, is_late):
            is_late = True
        # Its time was up, perhaps, before the acknowledgement came to the broker.
        is_slow = asyncio.get_running_loop().time() - began > INVISIBLE_SECONDS - 1
        if is_slow or moment % 2 or moment != self._moment:
            read.forgiven |= set(bodies)

    async def _acknowledge(
        self, client: Client, group: str, wanted: list[Any], is_late: bool
    ) -> list[Any]:
        """The messages to acknowledge again: a push consumer's, until it gets an answer. The proxy
        keeps them invisible as long as the client is there. `is_late` is said of a repetition."""
        topic, renews = GROUPS[group]
        read = self.read[group]
        read.unsure |= {each.body.decode() for each in wanted}  # from now on it may be done
        entries = [
            {
                "message_id": each.system_properties.message_id,
                "receipt_handle": each.system_properties.receipt_handle,
            }
            for each in wanted
        ]
        fields = {"topic": resource(topic), "group": resource(group), "entries": entries}
        try:
            answer = await client.call("AckMessage", seconds=CALL_SECONDS, **fields)
        except grpc.aio.AioRpcError as wrong:
            if not renews or wrong.code() not in LOST:
                raise
            await self._fail(str(wrong.details()))
            return wanted
        now = asyncio.get_running_loop().time()
        again = []
        for each, entry in zip(wanted, answer.entries, strict=False):
            body = each.body.decode()
            if entry.status.code == Code.OK:
                read.acknowledged.setdefault(body, now)
                read.unsure.discard(body)
            elif entry.status.code == Code.INVALID_RECEIPT_HANDLE:
                if not is_late:  # else an earlier one may have been done
                    read.unsure.discard(body)
            elif renews:
                again.append(each)
        await self._note()
        if again:
            await self._fail(str(answer.status))
        return again

    def _got(self, read: Read, topic: str, body: str, system: Any, began: float) -> None:
        if body not in self.sent[topic]:
            read.wrong.append(f"{body} was delivered and never sent")
        if topic == PAID and not is_committed(body):
            read.wrong.append(f"{body} was rolled back and delivered")
        acknowledged = read.acknowledged.get(body)
        if body in read.forgiven:
            acknowledged = None
        if body in self.checked:
            acknowledged = None  # a check that crosses the end commits it a second time
        if acknowledged is not None and acknowledged < began:
            read.wrong.append(
                f"{body} came for the {system.delivery_attempt}. time in a receive that began "
                f"{began - acknowledged:.3f} s after its acknowledgement was answered"
            )
        read.unsure.discard(body)
        read.again += body in read.seen
        read.seen.add(body)

    # ---- the judgement

    async def read_all(self) -> None:
        """Note all that the broker has."""
        peers = Peers()
        try:
            for topic in (NORMAL, ORDERED):
                bodies = await self._bodies(peers, topic)
                for offset, body in enumerate(bodies):
                    self.ledger.delivered((topic, 0), offset, body.encode())
                self.ledger.read_all((topic, 0), 0, len(bodies))
                if topic == ORDERED:
                    self._order = bodies
            paid = await self._bodies(peers, PAID)
        finally:
            await peers.close()
        lost = self._wanted(PAID) - set(paid)
        if lost:
            self.read["paid"].wrong.append(f"committed and not there: {sorted(lost)[:5]}")

    def faults(self) -> list[str]:
        """A line for each; empty when all is well."""
        found = self.ledger.faults()
        for group, (topic, _) in GROUPS.items():
            read = self.read[group]
            found += [f"group {group}: {line}" for line in read.wrong]
            lost = self._wanted(topic) - read.seen
            if lost:
                found.append(f"group {group} never got {len(lost)}: {sorted(lost)[:5]}")
        return found + self._disorder()

    def _disorder(self) -> list[str]:
        """Batches of the ordered group that came before what lies ahead of them."""
        place = {body: offset for offset, body in enumerate(self._order)}
        found = []
        for tried, batch in self.read["ordered"].batches:
            offsets = [place[body] for body in batch if body in place]
            if not offsets:
                continue
            if offsets != sorted(offsets):
                found.append(f"a batch is out of order: {batch}")
            ahead = set(self._order[: offsets[0]]) - tried
            if ahead:
                found.append(f"{batch[0]} came before {sorted(ahead)[:5]}")
        return found

    async def _bodies(self, peers: Peers, topic: str) -> list[str]:
        end = await self._end_of(peers, topic)
        found: list[str] = []
        while len(found) < end:
            header = PullMessage("all", topic, 0, len(found), 32, SUBSCRIPTION, 0, 0, 0, "*")
            answer = await peers.request(self._broker, codes.PULL_MESSAGE, header, b"", PROCESS)
            assert answer.code == codes.SUCCESS, answer.remark
            for record in decode_all(answer.body or b""):
                assert record.queue_offset == len(found), (topic, record.queue_offset)
                found.append(record.body.decode())
        return found

    async def _end_of(self, peers: Peers, topic: str) -> int:
        fields = {"topic": topic, "queueId": "0"}
        answer = await peers.request(self._broker, codes.GET_MAX_OFFSET, fields, b"", PROCESS)
        return int(answer.fields()["offset"])

    async def _is_all_decided(self) -> str:
        """The transactions that the broker's checks have not come to, as a text; empty when
        none."""
        peers = Peers()
        try:
            end = await self._end_of(peers, HALF_TOPIC)
            fields = {"topic": HALF_TOPIC, "queueId": "0", "consumerGroup": HALF_GROUP}
            answer = await peers.request(
                self._broker, codes.QUERY_CONSUMER_OFFSET, fields, b"", PROCESS
            )
            at = int(answer.fields()["offset"]) if answer.code == codes.SUCCESS else 0
            return f"half messages from {at} to {end} are not decided" if at < end else ""
        except OSError as wrong:
            return f"the broker doesn't answer: {wrong}"
        finally:
            with suppress(OSError):
                await peers.close()

    async def _is_nothing_left(self) -> str:
        """The messages that the broker still has for the groups, as a text; empty when none."""
        async with Admin(self._name_server) as admin:
            found = await admin.group_summaries(self._broker)
        assert found is not None, "the broker knows no summaries of groups"
        rows = {
            f"{each.group} in {row.topic}": f"{row.lag} left, {row.in_flight} of them delivered"
            for each in found.groups
            for row in each.topics
            if each.group in GROUPS and (row.lag or row.in_flight)
        }
        return f"the groups have messages: {rows}" if rows else ""


def _message(topic: str, body: str, system: dict[str, Any]) -> Any:
    system = {"message_id": uuid.uuid4().hex.upper(), **system}
    return new("Message", topic=resource(topic), body=body.encode(), system_properties=system)
