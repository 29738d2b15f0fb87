"""What a slave copies besides the log: a running master's tables, into its own files."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from aerobee.broker.groups.groups import Groups
from aerobee.broker.groups.offsets import Offsets
from aerobee.broker.pop.request_modes import RequestModes
from aerobee.broker.replication import synchronize
from aerobee.broker.replication.following_timers import Follower
from aerobee.broker.replication.synchronize import ALL_MS, SlaveSynchronize
from aerobee.broker.runtime.stats import Stats
from aerobee.broker.scheduled.delays import DelayOffsets, Delays
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.broker.settings.delay_levels import parse_levels
from aerobee.broker.topics.topics import Topics
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.assignment import SetMessageRequestModeRequestBody
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.ha import HARuntimeInfo
from aerobee.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from aerobee.protocol.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from aerobee.protocol.command import Command
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.topics import TopicName, UpdateTopic
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import json_file
from aerobee.store.timer.timer_check import TimerCheck

from ..conftest import Caller, Config
from ..parts import HOST

IN_VIRTUAL_TIME = True

NOW_MS = 1_700_000_000_000


class Timers:
    """Records the calls of `follow`."""

    class metrics:
        follow = staticmethod(lambda counts: None)

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def follow(self, read_ms: int, queue_offset: int) -> None:
        self.told.append((read_ms, queue_offset))


class Slave:
    """The tables of a slave and the `SlaveSynchronize` that copies the master's."""

    def __init__(
        self,
        config: BrokerConfig,
        folder: Path,
        peers: Peers,
        all_ms: int,
        offsets_ms: int,
    ) -> None:
        self.now_ms = NOW_MS
        self.log_end = 0
        self.folder = folder
        clock = lambda: self.now_ms  # noqa: E731
        self.store = MessageStore(folder / "store", config.store_settings(), HOST, clock)
        self.store.open()
        stats = Stats("DefaultCluster", clock)
        self.topics = Topics(folder / "topics.json", config, stats, clock)
        self.groups = Groups(folder / "subscriptionGroup.json", config, clock)
        self.offsets = Offsets(folder / "consumerOffset.json", clock)
        levels = parse_levels(config.message_delay_level)
        delayed = folder / "delayOffset.json"
        self.delays = Delays(delayed, self.store, levels, clock, lambda _: None, stats)
        self.modes = RequestModes(folder / "messageRequestMode.json")
        for part in (self.topics, self.groups, self.offsets, self.delays, self.modes):
            part.load()
        self.timers = Timers()
        self.sync = SlaveSynchronize(
            peers,
            "127.0.0.1:1",
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            self.modes,
            cast(Follower, self.timers),
            lambda: self.log_end,
            clock,
            all_ms,
            offsets_ms,
        )

    def saved(self, name: str) -> dict[str, Any]:
        self.topics.save()
        self.groups.save()
        found: dict[str, Any] = json.loads(json_file.read(self.folder / name) or b"")
        return found


Made = Callable[..., Slave]


@pytest.fixture
async def slave(config: Config, tmp_path: Path) -> AsyncIterator[Made]:
    """`slave(peers)`: creates the tables of a slave in their own folder."""
    made: list[Slave] = []
    own = Peers()

    def make(peers: Peers = own, all_ms: int = ALL_MS, offsets_ms: int = ALL_MS) -> Slave:
        made.append(Slave(config(), tmp_path / "slave", peers, all_ms, offsets_ms))
        return made[-1]

    yield make
    await own.close()
    for one in made:
        one.store.close()


async def test_topics_groups_offsets_and_modes_are_copied_from_the_master(
    broker: Broker, caller: Caller, slave: Made
) -> None:
    for name in ("A", "B"):
        await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(name, 3, 5, 6))
    group = SubscriptionGroupConfig(group_name="cg", retry_max_times=3)
    await caller.ask(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "A", 1, 77))
    mode = SetMessageRequestModeRequestBody("A", "cg", "POP", 1)
    await caller.ask(codes.SET_MESSAGE_REQUEST_MODE, body=mode.encode())
    one = slave()
    one.sync.set_master(caller.address)
    await one.sync.tick()
    assert one.sync.synced_ms == NOW_MS
    assert one.topics.all() == broker.topics.all()
    assert one.topics.version == broker.topics.version
    assert one.groups.all() == broker.groups.all()
    assert one.groups.version == broker.groups.version
    assert one.offsets.get("A", "cg", 1) == 77
    assert one.modes.get("A", "cg") == mode
    one.offsets.save()
    broker.topics.save()
    broker.groups.save()
    config = broker.config.store_dir / "config"
    for name in ("topics.json", "subscriptionGroup.json", "messageRequestMode.json"):
        assert one.saved(name) == json.loads(json_file.read(config / name) or b""), name
    assert one.saved("consumerOffset.json")["offsetTable"]["A@cg"] == {"1": 77}


async def test_in_controller_mode_the_offsets_of_groups_are_copied_more_often(
    broker: Broker, caller: Caller, slave: Made
) -> None:
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("A", 3, 5, 6))
    group = SubscriptionGroupConfig(group_name="cg")
    await caller.ask(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
    peers = Peers()
    one = slave(peers, 10_000, 2_500)
    one.sync.set_master(caller.address)
    await one.sync.tick()
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "A", 1, 77))
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("B", 1, 1, 6))
    one.now_ms += 2_500
    await one.sync.tick()
    assert one.offsets.get("A", "cg", 1) == 77
    assert one.topics.get("B") is None
    one.now_ms += 7_500
    await one.sync.tick()
    assert one.topics.get("B") is not None
    await peers.close()


async def test_static_topics_are_copied_and_deleted_as_on_the_master(
    broker: Broker, caller: Caller, slave: Made
) -> None:
    detail = TopicQueueMappingDetail(
        "S",
        total_queues=1,
        bname="broker-a",
        epoch=5,
        hosted_queues={0: [LogicQueueMappingItem(bname="broker-a")]},
    )
    code = codes.UPDATE_AND_CREATE_STATIC_TOPIC
    assert (await caller.ask(code, UpdateTopic("S", 1, 1, 6), detail.encode())).code == 0
    one = slave()
    one.sync.set_master(caller.address)
    await one.sync.tick()
    assert one.topics.static.table == {"S": detail} == broker.topics.static.table
    assert one.topics.static.version == broker.topics.static.version
    assert one.topics.targets["S"].special
    file = broker.config.store_dir / "config" / "topicQueueMapping.json"
    assert one.saved("topicQueueMapping.json") == json.loads(json_file.read(file) or b"")
    await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("S"))
    one.now_ms += ALL_MS
    await one.sync.tick()
    assert one.topics.static.table == {}


async def test_a_deletion_on_the_master_is_repeated_on_the_slave(
    broker: Broker, caller: Caller, slave: Made
) -> None:
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("A", 3, 5, 6))
    one = slave()
    one.sync.set_master(caller.address)
    await one.sync.tick()
    assert "A" in one.topics.targets
    await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("A"))
    one.now_ms += ALL_MS - 1
    await one.sync.tick()
    assert one.topics.get("A") is not None  # topics are not copied at each tick
    one.now_ms += 1
    await one.sync.tick()
    assert one.topics.get("A") is None
    assert "A" not in one.topics.targets
    assert "A" not in one.saved("topics.json")["topicConfigTable"]


async def test_offsets_that_only_the_slave_has_are_kept(
    broker: Broker, caller: Caller, slave: Made
) -> None:
    one = slave()
    one.offsets.commit("B", "other", 0, 5)
    broker.offsets.commit("A", "cg", 0, 3)
    one.sync.set_master(caller.address)
    await one.sync.tick()
    assert (one.offsets.get("B", "other", 0), one.offsets.get("A", "cg", 0)) == (5, 3)


class Master(Peers):
    """Responds as a master does, and with an error to other codes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.end = 1_000
        self.delays = {3: 5}
        self.timer = TimerCheck(read_ms=NOW_MS, master_queue_offset=8)

    async def request(self, address: str, code: int, *_: Any, **__: Any) -> Command:
        self.asked.append(code)
        bodies = {
            codes.GET_ALL_DELAY_OFFSET: DelayOffsets(self.delays).encode(),
            codes.GET_BROKER_HA_STATUS: HARuntimeInfo(True, self.end).encode(),
            codes.GET_TIMER_CHECK_POINT: self.timer.numbers(),
            codes.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetSerializeWrapper({"A@g": {0: 4}}).encode(),
        }
        body = bodies.get(code)
        answer = 0 if body is not None else codes.SYSTEM_ERROR
        return Command(code=answer, flag=1, opaque=1, body=body)


async def test_deliveries_of_the_master_count_once_the_slave_has_their_log(slave: Made) -> None:
    master = Master()
    one = slave(master)
    one.sync.set_master("m:1")
    one.log_end = 999
    await one.sync.tick()
    assert (one.delays.offsets, one.timers.told) == ({}, [])
    one.log_end = 1_000
    await one.sync.tick()
    assert (one.delays.offsets, one.timers.told[0]) == ({3: 5}, (NOW_MS, 8))


async def test_a_newer_position_does_not_replace_one_that_waits_for_the_log(slave: Made) -> None:
    master = Master()
    one = slave(master)
    one.sync.set_master("m:1")
    for _ in range(3):  # the slave's log always lags a little
        await one.sync.tick()
        one.log_end, master.end = master.end, master.end + 1_000
        master.timer.read_ms += 3_000
    assert one.timers.told == [(NOW_MS, 8), (NOW_MS + 3_000, 8)]


async def test_a_table_that_cannot_be_copied_is_logged_once_and_the_others_are_copied(
    slave: Made, caplog: pytest.LogCaptureFixture
) -> None:
    one = slave(Master())
    one.log_end = 1_000
    one.sync.set_master("m:1")
    for _ in range(2):
        await one.sync.tick()
        one.now_ms += ALL_MS
    assert one.offsets.get("A", "g", 0) == 4
    assert one.sync.synced_ms == 0
    told = [text for text in caplog.messages if "no topics from master m:1" in text]
    assert len(told) == 1
    assert "it answers 1" in told[0]


async def test_nothing_is_copied_from_a_master_with_a_shorter_log(
    slave: Made, caplog: pytest.LogCaptureFixture
) -> None:
    master = Master()
    one = slave(master)
    one.sync.set_master("m:1")
    one.log_end = 1_001
    for _ in range(3):
        await one.sync.tick()
    assert set(master.asked) == {codes.GET_BROKER_HA_STATUS}
    (told,) = [text for text in caplog.messages if "from master m:1" in text]
    assert "its log ends at 1000, this slave's at 1001" in told
    master.end = 1_001
    await one.sync.tick()
    assert one.offsets.get("A", "g", 0) == 4


async def test_without_a_master_no_request_is_sent(slave: Made) -> None:
    master = Master()
    one = slave(master)
    await one.sync.tick()
    one.sync.set_master("127.0.0.1:1")  # its own address: the name server is outdated
    await one.sync.tick()
    assert master.asked == []


def test_a_tick_is_three_seconds_and_a_round_a_minute() -> None:
    assert (synchronize.TICK_SECONDS, ALL_MS) == (3.0, 60_000)
