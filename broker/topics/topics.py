"""The topics of this broker: topics.json, the rules for creating them, and the view for sends.

Static topics have more, in `static`.

`targets` holds for each topic what a send needs to know, found with one look-up. Every change goes
through `put` or `delete`, which keep the file, the version and the targets in step and call
`on_change`, which registers the topic with the name servers.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...protocol import codes
from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.topic import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    SYS_FLAG_UNIT,
    SYS_FLAG_UNIT_SUB,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from ...protocol.errors import Refusal
from ...protocol.headers.send import SendMessage, SendMessageV1
from ...protocol.names import (
    LMQ_PREFIX,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    check_sendable,
    check_topic,
)
from ...store.base.errors import StoreError
from ...store.base.retention import TopicRule
from ...store.files import json_file
from ..runtime.stats import Puts, Stats
from ..runtime.table_file import Change, TableFile
from ..settings.config import BrokerConfig
from .attributes import BATCH_QUEUES, CLEANUP_POLICY, COMPACTION, QUEUE_TYPE, rule_of
from .static_mappings import StaticTopics

TOPICS_MAX = 100_000
QUEUES_MAX = 65_536  # of one topic
AUTO_CREATE_TOPIC = "TBW102"
READ_WRITE = PERM_READ | PERM_WRITE
MULTI_TAG = "MULTI_TAG"  # a topicFilterType
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class TopicsChange(Change):
    """A line of the journal of topics.json."""

    put: dict[str, TopicConfig] = {}


@dataclass(slots=True, eq=False)
class Target:
    """A topic as a send sees it.

    `queues` is the number of legal queue ids. `special` topics need more checks (retry topics,
    static, forbidden and closed ones, topics that mark messages or require keys). `keys` are the
    (topic, queue id) pairs of `LongPolls`. One that `is_logical` has offsets of its own (`offset`).
    """

    name: str
    config: TopicConfig
    queues: int
    special: bool
    puts: Puts
    keys: list[tuple[str, int]]
    is_logical: bool = False

    def offset(self, queue_id: int, physical: int) -> int:
        """The offset in the response to a send to this queue."""
        return physical


class Topics:
    """Topic configurations by name. `on_change(config)` is called after every change of one,
    `on_delete(name)` after a deletion, `on_static(name)` after one of a static topic's mapping.
    `wait_registered(seconds)` waits until the name servers know all changes; None without name
    servers."""

    def __init__(
        self, path: Path, config: BrokerConfig, stats: Stats, now_ms: Callable[[], int]
    ) -> None:
        # The mappings of static topics, which have a file of their own.
        self.static = StaticTopics(
            path.with_name("topicQueueMapping.json"), config.broker_name, now_ms
        )
        self.static.on_change = self._on_static
        self.file: TableFile[TopicConfig, TopicsChange] = TableFile(
            path, "topicConfigTable", TopicsChange, now_ms
        )
        self._config = config
        self._stats = stats
        self._now_ms = now_ms
        self._topics: dict[str, TopicConfig] = {}
        self.targets: dict[str, Target] = {}
        self.with_batch_queues: set[str] = set()
        self.retention: dict[str, TopicRule] = {}  # of topics with a retention of their own
        self.made: list[TopicConfig] = []  # by sends, and not in the file yet
        self.on_change: Callable[[TopicConfig], None] = lambda _: None
        self.on_delete: Callable[[str], None] = lambda _: None
        self.on_static: Callable[[str], None] = lambda _: None
        self.wait_registered: Callable[[float], Coroutine[Any, Any, None]] | None = None

    def load(self) -> None:
        """Read the files and add the system's own topics; ValueError when one can't be read."""
        self.static.load()
        found = json_file.load(self.file.path, TopicConfigAndMappingSerializeWrapper.decode)
        if found is not None:
            self._topics = found.topic_config_table
        for change in self.file.load(None if found is None else found.data_version):
            self._topics |= change.put
            for name in change.gone:
                self._topics.pop(name, None)
        for config in self._system_topics():
            self._topics.setdefault(config.topic_name or "", config)
        for config in self._topics.values():
            self._aim(config)

    @property
    def version(self) -> DataVersion:
        """The version of the table; another one after each change."""
        return self.file.version

    def add_system_topics(self) -> None:
        """Create the system topics that a changed setting requires."""
        wanted = [one for one in self._system_topics() if one.topic_name not in self._topics]
        if wanted:
            self.put_all(wanted)

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch in which this broker is the master: name servers take its registration
        instead of that of an older master."""
        now_ms = self._now_ms()
        self.file.changed({}, version=self.version.following(now_ms, epoch))

    def announce(self) -> None:
        """Register every topic with the name servers again: their permissions have changed."""
        self.file.changed({})
        for config in self._topics.values():
            self.targets[config.topic_name or ""].special = self._is_special(config)
            self.on_change(config)

    def queue_left(self, name: str, queue_id: int) -> int:
        """The queue for a message that has waited for its time: the same, or another if the topic
        has fewer write queues by now."""
        config = self._topics.get(name)
        if config is None or name in self.static.table:
            return queue_id
        count = config.write_queue_nums
        return queue_id % count if queue_id >= count > 0 else queue_id

    def get(self, name: str) -> TopicConfig | None:
        found = self._topics.get(name)
        if found is None and self._is_light(name):
            return TopicConfig(name, 1, 1, READ_WRITE)
        return found

    def all(self) -> dict[str, TopicConfig]:
        return dict(self._topics)

    def put(self, config: TopicConfig) -> None:
        """Add or replace a topic, write it down, tell the name servers."""
        self.put_all([config])

    def put_all(self, configs: list[TopicConfig]) -> None:
        """Put several topics, all or none, with one write. Light queues stay as they are."""
        configs = [config for config in configs if not self._is_light(config.topic_name or "")]
        self._take(configs)
        self._changed(configs)
        for config in configs:
            self.on_change(config)

    def save_made(self) -> None:
        """Write down the topics that sends have created, and register them.

        If that fails the topics are removed again, and StoreError has the reason.
        """
        made, self.made = self.made, []
        try:
            self._changed(made)
        except StoreError:
            for config in made:
                name = config.topic_name or ""
                self.targets.pop(name, None)
                self._topics.pop(name, None)
            raise
        for config in made:
            self.on_change(config)

    def _take(self, configs: list[TopicConfig]) -> None:
        """Add or replace topics in memory, all or none; Refusal over a limit."""
        wanted = {config.topic_name or "": config for config in configs}
        if len(self._topics.keys() | wanted.keys()) > TOPICS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"there are {len(self._topics)} topics, the limit is {TOPICS_MAX}; delete some",
            )
        for name, config in wanted.items():
            most = max(config.read_queue_nums, config.write_queue_nums)
            if most > QUEUES_MAX:
                raise Refusal(
                    codes.INVALID_PARAMETER,
                    f"topic {name} would have {most} queues, the limit is {QUEUES_MAX}; ask for "
                    "fewer, or use several topics",
                )
        self._topics |= wanted
        for config in wanted.values():
            self._aim(config)

    def delete(self, name: str) -> bool:
        """Remove a topic and write that down; False when it wasn't there."""
        self.static.delete(name)
        self.targets.pop(name, None)
        self.with_batch_queues.discard(name)
        self.retention.pop(name, None)
        if self._topics.pop(name, None) is None:
            return False
        self.file.changed({}, [name])
        self.on_delete(name)
        return True

    def follow(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> bool:
        """Have a master's topics and no others, under its version, and write them down.

        False when this is its version already. Refusal over a limit: nothing has changed then.
        """
        if version == self.version:
            return False
        gone = self._topics.keys() - topics.keys()
        news = [one for name, one in topics.items() if self._topics.get(name) != one]
        self._take(news)
        for name in gone:
            self.targets.pop(name, None)
            self.with_batch_queues.discard(name)
            self.retention.pop(name, None)
            del self._topics[name]
        self._changed(news, gone, version)
        return True

    def for_send(self, header: SendMessage | SendMessageV1, peer: str) -> Target:
        """The topic of a send, created if unknown; Refusal when it may not be."""
        topic = header.topic
        check_sendable(topic)
        target = self.targets.get(topic)
        if target is not None:
            return target
        check_topic(topic)
        if self._is_light(topic):
            config = TopicConfig(topic, 1, 1, READ_WRITE)
            puts = self._stats.puts(LMQ_PREFIX)  # all light queues are counted as one
            return Target(topic, config, 1, True, puts, [(topic, 0)])
        return self._create_for_send(
            topic,
            header.default_topic,
            header.default_topic_queues,
            unit=bool(header.unit_mode),
            peer=peer,
        )

    def _create_for_send(
        self, name: str, default_topic: str, queues: int, *, unit: bool, peer: str
    ) -> Target:
        """The topic that a send to an unknown name creates; Refusal when it may not.

        `save_made` writes it down and must be called before the send is answered: once for all
        topics of a loop iteration, as one write to the disk takes longer than many iterations.

        As in RocketMQ a retry topic is created like any other, and with one queue where others are
        not created.
        """
        model = self._topics.get(default_topic)
        perm = 0 if model is None else model.perm
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            perm = READ_WRITE
        if model is None or not perm & PERM_INHERIT:
            if name.startswith(RETRY_PREFIX):
                return self.retries(name, 1, unit=unit)
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! Create it, or switch on "
                f"autoCreateTopicEnable (asked by {peer} with default topic {default_topic})" + FAQ,
            )
        # Texts have 4 queues: what clients ask for, 4 by default, and at most 8 (TBW102).
        count = max(1, min(queues, model.write_queue_nums))
        config = TopicConfig(name, count, count, perm & ~PERM_INHERIT, model.topic_filter_type)
        if unit:
            is_retry = name.startswith(RETRY_PREFIX)
            config.topic_sys_flag = SYS_FLAG_UNIT_SUB if is_retry else SYS_FLAG_UNIT
        self._take([config])
        self.made.append(config)
        return self.targets[name]

    def put_in_order(self, names: Iterable[str]) -> None:
        """Mark the topics in the name servers' order conf as ordered, for good, as RocketMQ
        does."""
        news = []
        for name in names:
            known = self._topics.get(name)
            if known is not None and not known.order:
                ordered = copy(known)
                ordered.order = True
                news.append(ordered)
        if news:
            self.put_all(news)

    def dead_letters(self, name: str) -> Target:
        """A retry or dead letter topic, created with one queue if missing."""
        return self.retries(name, 1)

    def retries(self, name: str, queues: int, *, unit: bool = False) -> Target:
        """A retry topic with at least this many queues, created or extended if necessary."""
        found = self.targets.get(name)
        if found is None:
            self.put(retry_config(name, queues, unit=unit, order=False))
        elif found.config.write_queue_nums < (most := min(queues, QUEUES_MAX)):
            # RocketMQ leaves it as it is, and puts messages into queues without a reader.
            grown = copy(found.config)
            grown.write_queue_nums = most
            grown.read_queue_nums = max(most, grown.read_queue_nums)
            self.put(grown)
        return self.targets[name]

    def check_open(self, target: Target) -> None:
        """Refusal for a topic in order where brokerPermission forbids writes: as in RocketMQ it
        closes only those topics; for others clients learn it from their routes."""
        if self._is_closed(target.config):
            raise writes_forbidden(self._config, f", and topic {target.name} is in order")

    def pieces(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as request 21 has it, static topics included, or topics.json (`standard`), in
        pieces between which others may work."""
        body = TopicConfigAndMappingSerializeWrapper({}, self.version)
        if not standard:
            body.topic_queue_mapping_detail_map = self.static.table
            body.mapping_data_version = self.static.version
        return self.file.pieces(body, self._topics, standard=standard)

    def save(self) -> None:
        """Write the file, if its journal has something. StoreError when it can't be written."""
        self.file.save(self.pieces(standard=True))

    def _aim(self, config: TopicConfig) -> None:
        name = config.topic_name or ""
        if config.attributes and config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
            self.with_batch_queues.add(name)
        rule = rule_of(config.attributes)
        if rule is not None:
            self.retention[name] = rule
        else:
            self.retention.pop(name, None)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        special = self._is_special(config)
        keys = [(name, queue_id) for queue_id in range(queues)]
        self.targets[name] = Target(name, config, queues, special, self._stats.puts(name), keys)

    def _is_special(self, config: TopicConfig) -> bool:
        name = config.topic_name or ""
        is_named = name.startswith(RETRY_PREFIX) or name in SEND_FORBIDDEN_TOPICS
        is_marked = config.topic_filter_type == MULTI_TAG or is_compacted(config)
        is_static = name in self.static.table
        return is_named or is_marked or is_static or self._is_closed(config)

    def _is_light(self, name: str) -> bool:
        """True for a light queue, which is a topic with one queue and in no table."""
        return name.startswith(LMQ_PREFIX) and self._config.lmq_enable

    def _on_static(self, name: str) -> None:
        """Update the target of a topic whose mapping has changed, or is there for the first time,
        or no longer."""
        target = self.targets.get(name)
        if target is not None:
            target.special = self._is_special(target.config)
        self.on_static(name)

    def _is_closed(self, config: TopicConfig) -> bool:
        return config.order and not self._config.broker_permission & PERM_WRITE

    def _changed(
        self,
        configs: Iterable[TopicConfig],
        gone: Iterable[str] = (),
        version: DataVersion | None = None,
    ) -> None:
        put = {config.topic_name or "": config for config in configs}
        self.file.changed(put, gone, version)

    def _system_topics(self) -> list[TopicConfig]:
        """The topics that every RocketMQ broker creates at its start."""
        config = self._config
        cluster, broker = config.broker_cluster_name, config.broker_name
        inherit = READ_WRITE | PERM_INHERIT
        table = [
            ("SELF_TEST_TOPIC", 1, READ_WRITE),
            ("BenchmarkTest", 1024, READ_WRITE),
            (cluster, 16, inherit if config.cluster_topic_enable else PERM_INHERIT),
            (broker, 1, inherit if config.broker_topic_enable else PERM_INHERIT),
            ("OFFSET_MOVED_EVENT", 1, READ_WRITE),
            ("SCHEDULE_TOPIC_XXXX", 18, READ_WRITE),
            (f"{cluster}{REPLY_TOPIC_SUFFIX}", 1, READ_WRITE),
            (f"rmq_sys_REVIVE_LOG_{cluster}", config.revive_queue_num, READ_WRITE),
            (f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
            ("RMQ_SYS_TRANS_HALF_TOPIC", 1, READ_WRITE),
            ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, READ_WRITE),
            ("rmq_sys_wheel_timer", 1, READ_WRITE),
        ]
        if config.auto_create_topic_enable:
            table.append((AUTO_CREATE_TOPIC, config.default_topic_queue_nums, inherit))
        if config.trace_topic_enable:
            table.append((config.msg_trace_topic_name, 1, READ_WRITE))
        return [TopicConfig(name, queues, queues, perm) for name, queues, perm in table]


def writes_forbidden(config: BrokerConfig, more: str = "") -> Refusal:
    """The Refusal of a broker whose brokerPermission lacks the bit for writing."""
    return Refusal(
        codes.NO_PERMISSION,
        f"the broker[{config.broker_ip1}] sending message is forbidden: its brokerPermission is "
        f"{config.broker_permission}, without 2 for writing{more}",
    )


def is_compacted(config: TopicConfig) -> bool:
    """True if only the last message of each key is wanted, so that each message needs a key."""
    return bool(config.attributes) and config.attributes.get(CLEANUP_POLICY) == COMPACTION


def retry_config(name: str, queues: int, *, unit: bool, order: bool) -> TopicConfig:
    """A retry topic with this many queues."""
    config = TopicConfig(name, queues, queues, READ_WRITE, order=order)
    config.topic_sys_flag = SYS_FLAG_UNIT_SUB if unit else 0
    return config
