"""A Kafka cluster as the source of a mirror, through aiokafka.

A partition becomes the queue of its number. The key of a record becomes the sharding key and the
key of its message, headers become properties; what is no text is written in Base64 under a name
that says so. The second header of a name gets `.2` behind it. A header whose name RocketMQ, or this
module, uses gets `kafka.` before it.

A message has at least one byte: the body of a record without a value (a tombstone), or with an
empty one, is a zero byte, and the property `kafka.value` says null or empty.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.topic import TopicConfig
from ...protocol.message import properties as props
from ..base.security import Security
from ..base.start_from import FIRST, LAST, StartFrom
from ..errors import ClientError, NoRouteError, UnreachableError
from .origin import PROPERTY
from .source import SAFE_PROPERTIES_BYTES, Copyable, Found, Source

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, ConsumerRecord
    from aiokafka.admin import AIOKafkaAdminClient

SCHEME = "kafka://"
BROKER = "kafka"  # the broker name of all queues
READ_MESSAGES = 1_024
READ_MS = 1_000
PREFIX = "kafka."  # of what is no header, and of a header whose name is taken
KEY, VALUE, BASE64 = f"{PREFIX}key", f"{PREFIX}value", ".base64"
NO_BODY = b"\0"
_NO_TEXT = re.compile("[\x00-\x02]")  # the separators of properties


class KafkaSource(Source):
    """Reads from the brokers of `addresses` ("host:port,host:port").

    `security` gives TLS and, with an access key, a user and password (SASL, SCRAM-SHA-512). The
    mirror's progress is that of `group`. ClientError without the package aiokafka.
    """

    def __init__(self, addresses: str, security: Security, group: str) -> None:
        try:
            import aiokafka
            import aiokafka.admin
            import aiokafka.errors
        except ImportError:
            raise ClientError(
                "a mirror of Kafka needs the package aiokafka; install aerobee[kafka]"
            ) from None
        self._kafka: Any = aiokafka
        options: dict[str, Any] = {"bootstrap_servers": addresses}
        if security.context is not None:
            options |= {"ssl_context": security.context}
        if security.signs:
            options |= {
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": security.access_key,
                "sasl_plain_password": security.secret_key,
            }
        protocol = ("SASL_" if security.signs else "") + (
            "PLAINTEXT" if security.context is None else "SSL"
        )
        self._options = {**options, "security_protocol": protocol}
        self._addresses = addresses
        self._group = group
        self._consumer: AIOKafkaConsumer | None = None
        self._admin: AIOKafkaAdminClient | None = None
        self._one = asyncio.Lock()  # a partition is added to the assignment
        self._at: dict[Any, int] = {}  # where the consumer is in each partition

    async def start(self) -> None:
        """Connect; UnreachableError when no broker answers."""
        self._consumer = self._kafka.AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            **self._options,
        )
        self._admin = self._kafka.admin.AIOKafkaAdminClient(**self._options)
        await self._do(self._consumer.start())
        await self._do(self._admin.start())

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()
        if self._admin is not None:
            await self._admin.close()

    async def name(self) -> str:
        return f"{BROKER}:{(await self._do(self._open_admin.describe_cluster()))['cluster_id']}"

    async def topics(self) -> list[str]:
        names = await self._do(self._open_admin.list_topics())
        return sorted(name for name in names if not name.startswith("__"))

    async def settings(self, topic: str) -> TopicConfig:
        return TopicConfig(topic)

    async def queues(self, topic: str) -> list[MessageQueue]:
        [found] = await self._do(self._open_admin.describe_topics([topic]))
        numbers = sorted(each["partition"] for each in found["partitions"])
        if not numbers:
            raise NoRouteError(f"Kafka at {self._addresses} has no topic {topic}")
        return [MessageQueue(topic, BROKER, number) for number in numbers]

    async def ends(self, queues: list[MessageQueue]) -> Mapping[MessageQueue, int]:
        by_partition = {self._partition(queue): queue for queue in queues}
        found = await self._do(self._open_consumer.end_offsets(list(by_partition)))
        return {by_partition[each]: offset for each, offset in found.items()}

    async def first_offset(self, queue: MessageQueue, start: StartFrom, *, is_new: bool) -> int:
        partition, consumer = self._partition(queue), self._open_consumer
        # Always asked: while aiokafka looks for the coordinator it takes no other assignment.
        committed: int | None = await self._do(consumer.committed(partition))
        if committed is not None and not is_new:
            return committed
        if start.where == FIRST:
            found = await self._do(consumer.beginning_offsets([partition]))
            return int(found[partition])
        if start.where != LAST:
            times = await self._do(consumer.offsets_for_times({partition: start.ms}))
            if times[partition] is not None:
                return int(times[partition].offset)
        return int((await self._do(consumer.end_offsets([partition])))[partition])

    async def read(self, queue: MessageQueue, offset: int) -> Found:
        partition, consumer = self._partition(queue), self._open_consumer
        async with self._one:
            if partition not in consumer.assignment():
                consumer.assign([*consumer.assignment(), partition])
                for other, at in self._at.items():
                    consumer.seek(other, at)
            if self._at.get(partition) != offset:
                consumer.seek(partition, offset)
                self._at[partition] = offset
            try:
                fetched = consumer.getmany(partition, timeout_ms=READ_MS, max_records=READ_MESSAGES)
                records = (await self._do(fetched)).get(partition, [])
            except self._kafka.errors.OffsetOutOfRangeError:
                first = (await self._do(consumer.beginning_offsets([partition])))[partition]
                if first <= offset:
                    raise ClientError(
                        f"partition {queue.queue_id} of {queue.topic} has no offset {offset}, up "
                        "to which it was copied: it is another topic of this name; delete the "
                        "topic at the target to copy it from its beginning"
                    ) from None
                return Found([], first)
            # Markers of transactions and what compaction took have offsets, too.
            at = self._at[partition] = await self._do(consumer.position(partition))
        return Found([copyable(each) for each in records], max(at, offset))

    async def groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        listed = await self._do(self._open_admin.list_consumer_groups())
        return {name: SubscriptionGroupConfig(name) for name, *_ in listed}

    async def offsets(
        self, matches: Callable[[str], bool]
    ) -> Mapping[tuple[str, MessageQueue], int]:
        found = {}
        for name in await self.groups():
            if matches(name):
                listed = await self._do(self._open_admin.list_consumer_group_offsets(name))
                for partition, at in listed.items():
                    queue = MessageQueue(partition.topic, BROKER, partition.partition)
                    found[name, queue] = at.offset
        return found

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        moved = {self._partition(queue): offset for queue, offset in offsets.items()}
        await self._do(self._open_consumer.commit(moved))

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _open_consumer(self) -> "AIOKafkaConsumer":
        assert self._consumer is not None
        return self._consumer

    @property
    def _open_admin(self) -> "AIOKafkaAdminClient":
        assert self._admin is not None
        return self._admin

    def _partition(self, queue: MessageQueue) -> Any:
        return self._kafka.TopicPartition(queue.topic, queue.queue_id)

    async def _do(self, work: Any) -> Any:
        """The result of a call of aiokafka, its errors as ours."""
        try:
            return await work
        except self._kafka.errors.OffsetOutOfRangeError:
            raise
        except (self._kafka.errors.KafkaError, OSError) as wrong:
            raise UnreachableError(
                f"Kafka at {self._addresses} does not do it: {type(wrong).__name__}: {wrong}"
            ) from wrong


def copyable(record: "ConsumerRecord") -> Copyable:
    """A record of Kafka as a message."""
    pairs: dict[str, str] = {}
    for name, value in record.headers:
        is_taken = name in props.SYSTEM or name == PROPERTY or name.startswith(PREFIX)
        _add(pairs, PREFIX + name if is_taken else name, value or b"")
    if record.key is not None:
        text = _add(pairs, KEY, record.key)
        pairs[props.SHARDING_KEY] = text
        if " " not in text:  # a blank separates two keys
            pairs[props.KEYS] = text
    if not record.value:
        pairs[VALUE] = "null" if record.value is None else "empty"
    raw = _encode(pairs)
    for name in (props.KEYS, props.SHARDING_KEY):  # the key three times is too much
        if len(raw) > SAFE_PROPERTIES_BYTES:
            pairs.pop(name, None)
            raw = _encode(pairs)
    return Copyable(record.offset, record.timestamp, record.timestamp, record.value or NO_BODY, raw)


def _encode(pairs: dict[str, str]) -> bytes:
    return props.encode({name: text for name, text in pairs.items() if name and text})


def _add(pairs: dict[str, str], name: str, value: bytes) -> str:
    """Add a property, and return its text. One whose name is there gets a number behind it."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if _NO_TEXT.search(text):
        text = base64.b64encode(value).decode()
        name += BASE64
    name = unique = _NO_TEXT.sub("_", name)
    number = 1
    while unique in pairs:
        number += 1
        unique = f"{name}.{number}"
    pairs[unique] = text
    return text
