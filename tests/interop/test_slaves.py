"""A slave beside a master, one of them ours and the other the real one: what the slave copies
besides the log, what it refuses, and which consumers read from it while the master is down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.scheduled.delays import DelayOffsets
from aerobee.client import Consumer, Message, Producer
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.assignment import (
    MessageRequestModeWrapper,
    SetMessageRequestModeRequestBody,
)
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from aerobee.protocol.bodies.ha import HARuntimeInfo
from aerobee.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from aerobee.protocol.bodies.topic import TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.headers.transactions import EndTransaction
from aerobee.protocol.message import properties
from aerobee.store.inspect.diff import diff

from .programs import SECONDS, Java, Mqadmin, wait_until
from .support import received, until

TOPIC, GROUP = "Copied", "CopiedGroup"
Settings = dict[str, str | int]
Kind = Callable[[Path, Settings], AerobeeCluster | JavaCluster]
COUNT = 12
SETTINGS: dict[str, str | int] = SMALL_FILES | {
    "slaveReadEnable": "true",
    "flushConsumerOffsetInterval": 100,
    "flushDelayOffsetInterval": 100,
}


@dataclass
class Pair:
    """A master with messages and settings of all kinds, and a slave that started after them."""

    master: AerobeeCluster | JavaCluster
    slave: AerobeeCluster | JavaCluster

    def synchronize(self) -> None:
        """Have the slave copy everything now: a real slave copies a minute after its start."""
        if isinstance(self.slave, JavaCluster):
            assert self.slave.broker_process is not None
            told = self.slave.broker_process.ask("sync", "synced", SECONDS)
            assert told["master"] == self.master.broker


@pytest.fixture(scope="module", params=["ours has a java slave", "java has our slave"])
def pair(
    request: pytest.FixtureRequest, java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("slaves")
    kinds: list[Kind] = [ours, java_kind]
    if request.param.startswith("java"):
        kinds.reverse()
    kind, other = kinds
    master = kind(folder / "master", SETTINGS)
    more: Settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": master.namesrv}
    slave = other(folder / "slave", SETTINGS | more)
    try:
        master.start()
        asyncio.run(fill(master))
        slave.start_broker()
        yield Pair(master, slave)
    finally:
        slave.stop()
        master.stop()


def ours(folder: Path, settings: Settings) -> AerobeeCluster:
    return AerobeeCluster(folder, settings)


def java_kind(folder: Path, settings: Settings) -> JavaCluster:
    return JavaCluster(folder, settings, apart=True, flags=TEST_BROKER_FLAGS)


async def fill(master: Cluster) -> None:
    """Creates a topic, a group with settings and offsets, and messages, one of them delayed."""
    peers = Peers()
    group = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3)
    mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, "POP", 1)
    orders: list[tuple[int, Any, bytes]] = [
        (codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(TOPIC, 3, 3, 6), b""),
        (codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.encode()),
        (codes.SET_MESSAGE_REQUEST_MODE, None, mode.encode()),
    ]
    for code, header, body in orders:
        answer = await peers.request(master.broker, code, header, body, SECONDS)
        assert answer.code == codes.SUCCESS, answer
    async with Producer(master.namesrv) as producer:
        for number in range(COUNT):
            await producer.send(Message(TOPIC, b"%d" % number, keys=[str(number)]))
        await producer.send(Message(TOPIC, b"late", keys=["late"], delay_level=1))
    offset = UpdateConsumerOffset(GROUP, TOPIC, 1, 2)
    answer = await peers.request(
        master.broker, codes.UPDATE_CONSUMER_OFFSET, offset, timeout_s=SECONDS
    )
    assert answer.code == codes.SUCCESS, answer
    await peers.close()


# The contents of a file without its version: in some files each broker counts its own.
TABLES: dict[str, Callable[[bytes], Any]] = {
    "topics.json": lambda text: (
        TopicConfigAndMappingSerializeWrapper.decode(text).topic_config_table
    ),
    "subscriptionGroup.json": lambda text: (
        SubscriptionGroupWrapper.decode(text).subscription_group_table
    ),
    "consumerOffset.json": lambda text: ConsumerOffsetSerializeWrapper.decode(text).offset_table,
    "delayOffset.json": lambda text: DelayOffsets.decode(text).offset_table,
    "messageRequestMode.json": lambda text: (
        MessageRequestModeWrapper.decode(text).message_request_mode_map
    ),
}


def table(cluster: AerobeeCluster | JavaCluster, name: str) -> Any:
    """The contents of a broker's file; None while it is missing or incomplete."""
    try:
        return TABLES[name]((cluster.store / "config" / name).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def test_the_slaves_files_have_the_contents_of_its_masters_files(pair: Pair) -> None:
    # Wait until the delayed message is delivered and delayOffset.json says so.
    wait_until(
        lambda: (table(pair.master, "delayOffset.json") or {}).get(1) == 1,
        lambda: table(pair.master, "delayOffset.json"),
    )
    pair.synchronize()
    for name in TABLES:
        if name == "delayOffset.json" and isinstance(pair.slave, AerobeeCluster):
            continue  # copied before the delivery; the next copy is a minute later
        wait_until(
            lambda name=name: table(pair.slave, name) == table(pair.master, name) is not None,  # type: ignore[misc]
            lambda name=name: (table(pair.slave, name), table(pair.master, name)),  # type: ignore[misc]
        )
    assert table(pair.slave, "topics.json")[TOPIC].read_queue_nums == 3
    assert table(pair.slave, "subscriptionGroup.json")[GROUP].retry_max_times == 3
    assert table(pair.slave, "consumerOffset.json")[f"{TOPIC}@{GROUP}"] == {1: 2}
    if isinstance(pair.slave, AerobeeCluster):
        assert pair.slave.broker_process is not None
        said = pair.slave.broker_process.stderr_path.read_text()
        assert "trying again" not in said, said  # our slave could decode each response
    stores = pair.master.store, pair.slave.store
    wait_until(lambda: diff(*stores).count == 0, lambda: diff(*stores).found)


def test_mqadmin_lists_master_and_slave(pair: Pair, mqadmin: Mqadmin) -> None:
    text = mqadmin("clusterList", "-n", pair.master.namesrv)
    rows = [line.split()[2:4] for line in text.splitlines() if "interop-broker" in line]
    assert rows == [["0", pair.master.broker], ["1", pair.slave.broker]]


async def test_a_slave_refuses_as_the_real_one_does(pair: Pair, peers: Peers) -> None:
    pairs = properties.encode({}).decode()
    send = SendMessage("pg", TOPIC, "TBW102", 4, 0, 0, 1, 0, pairs, 0, batch=False)
    answer = await peers.request(pair.slave.broker, codes.SEND_MESSAGE_V2, send, b"x", SECONDS)
    assert answer.code == codes.SYSTEM_BUSY
    assert (answer.remark or "").startswith("[REJECTREQUEST]")
    end = EndTransaction("pg", 0, 0, 8, "0" * 32, transaction_id="0" * 32)
    answer = await peers.request(pair.slave.broker, codes.END_TRANSACTION, end, timeout_s=SECONDS)
    assert answer.code == codes.SLAVE_NOT_AVAILABLE


async def test_a_pull_that_finds_nothing_is_sent_to_the_master(pair: Pair, peers: Peers) -> None:
    pull = PullMessage(GROUP, TOPIC, 0, 1_000, 32, SUBSCRIPTION, 0, 0, 0, "*")
    answer = await peers.request(pair.slave.broker, codes.PULL_MESSAGE, pull, timeout_s=SECONDS)
    assert answer.code == codes.PULL_RETRY_IMMEDIATELY
    assert answer.fields()["suggestWhichBrokerId"] == "0"


async def has_caught_up(pair: Pair, peers: Peers) -> bool:
    """Whether the slave's log is as long as the master's."""
    code = codes.GET_BROKER_HA_STATUS
    master, slave = [
        HARuntimeInfo.decode((await peers.request(one.broker, code, timeout_s=SECONDS)).body)
        for one in (pair.master, pair.slave)
    ]
    end = slave.ha_client_runtime_info.max_offset
    return 0 < end == master.master_commit_log_max_offset


async def test_consumers_fail_over_to_the_slave_and_return_to_the_master(
    pair: Pair, java: Java, peers: Peers
) -> None:
    await until(lambda: has_caught_up(pair, peers), "the slave's log")
    await asyncio.to_thread(pair.master.stop_broker, kill=True)
    wanted = {*map(str, range(COUNT)), "late"}
    namesrv = pair.master.namesrv
    member = java.start("Consume", namesrv=namesrv, topic=TOPIC, group="JavaReader", routes=1_000)

    def seen() -> set[str]:
        return {one["key"] for one in member.events("message")}

    consumer = Consumer(namesrv, group="PythonReader", topics=[TOPIC], start="earliest")
    async with consumer, received(consumer) as found:

        def ours_seen() -> set[str]:
            return {one.keys[0] for one in found}

        await until(lambda: seen() == ours_seen() == wanted, lambda: (seen(), ours_seen()))
        if isinstance(pair.master, AerobeeCluster):  # the real master needs 15 s
            await asyncio.to_thread(pair.master.start_broker)
            async with Producer(namesrv) as producer:
                await producer.send(Message(TOPIC, b"more", keys=["more"]))
            wanted.add("more")
            await until(lambda: seen() == ours_seen() == wanted, lambda: (seen(), ours_seen()))
    member.say("stop")
    await asyncio.to_thread(member.wait_event, "stopped", SECONDS)
