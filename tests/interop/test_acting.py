"""A pair without a controller, one broker ours and the other the real one: the slave acts for a
master that is gone, and the master takes offsets and progress back when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.harness.clusters import (
    BROKER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    JavaCluster,
)
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from aerobee.protocol.bodies.ha import HARuntimeInfo
from aerobee.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.bodies.topic import TopicConfigSerializeWrapper
from aerobee.protocol.headers.namesrv import GetRoute
from aerobee.protocol.headers.offsets import QueueAddress, UpdateConsumerOffset
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.message import properties
from aerobee.store.timer.timer_check import NUMBERS

from ..waiting import SLOWNESS
from .programs import SECONDS
from .support import until

TOPIC, GROUP = "Acting", "ActingGroup"
LATE = 2  # messages that become due while the master is away
DUE_SECONDS = round(60 * SLOWNESS)  # after they were sent; by then the master is dead
SETTINGS: dict[str, str | int] = SMALL_FILES | {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "totalReplicas": 2,
    "flushConsumerOffsetInterval": 100,
    "flushDelayOffsetInterval": 100,
    "timerFlushIntervalMs": 1_000,  # the default
    "messageDelayLevel": f"{DUE_SECONDS}s",
}
Brokers = tuple[AerobeeCluster | JavaCluster, AerobeeCluster | JavaCluster, AerobeeCluster]


@pytest.fixture(params=["java master, our slave", "our master, java slave"])
def brokers(
    request: pytest.FixtureRequest, java_is_here: None, tmp_path: Path
) -> Iterator[Brokers]:
    """Master, slave, and a broker of another name; the name server is of the master's kind."""
    ours_leads = request.param.startswith("our")
    master = made(tmp_path / "master", SETTINGS, ours=ours_leads)
    with Path(master.namesrv_file).open("a") as file:
        file.write("supportActingMaster=true\nnotifyMinBrokerIdChanged=true\n")
    shared = SETTINGS | {"namesrvAddr": master.namesrv}
    as_slave: dict[str, str | int] = shared | {"brokerRole": "SLAVE", "brokerId": 1}
    slave = made(tmp_path / "slave", as_slave, ours=not ours_leads)
    other = AerobeeCluster(tmp_path / "other", shared | {"brokerName": "another-broker"})
    try:
        master.start()
        other.start_broker()
        slave.start_broker()
        yield master, slave, other
    finally:
        for one in (slave, other, master):
            one.stop()


def made(
    folder: Path, settings: dict[str, str | int], *, ours: bool
) -> AerobeeCluster | JavaCluster:
    if ours:
        return AerobeeCluster(folder, settings)
    return JavaCluster(folder, settings, apart=True, flags=TEST_BROKER_FLAGS)


class Asked:
    """Questions to the brokers."""

    def __init__(self, peers: Peers, namesrv: str) -> None:
        self.peers = peers
        self.namesrv = namesrv

    async def master_on_route(self) -> str | None:
        answer = await self.peers.request(
            self.namesrv, codes.GET_ROUTEINFO_BY_TOPIC, GetRoute(TOPIC), timeout_s=SECONDS
        )
        if answer.code != codes.SUCCESS:
            return None
        for broker in TopicRouteData.decode(answer.body).broker_datas:
            if broker.broker_name == BROKER_NAME:
                return broker.broker_addrs.get(0)
        return None

    async def send(self, broker: str, pairs: dict[str, str]) -> None:
        text = properties.encode(pairs).decode()
        header = SendMessage("pg", TOPIC, "TBW102", 4, 0, 0, 1, 0, text, 0, batch=False)
        answer = await self.peers.request(broker, codes.SEND_MESSAGE_V2, header, b"body", SECONDS)
        assert answer.code == codes.SUCCESS, answer.remark

    async def in_wheel(self, master: AerobeeCluster | JavaCluster) -> None:
        """Wait until the master says that the timer message is in its wheel."""

        async def is_in() -> bool:
            answer = await self.peers.request(
                master.broker, codes.GET_TIMER_CHECK_POINT, timeout_s=SECONDS
            )
            return bool(NUMBERS.unpack_from(answer.body or b"")[3] == 1)

        await until(is_in, "the timer message is in the wheel")

    async def end(self, broker: str) -> int:
        """How many messages queue 0 of the topic has there."""
        answer = await self.peers.request(
            broker, codes.GET_MAX_OFFSET, QueueAddress(TOPIC, 0), timeout_s=SECONDS
        )
        return int(answer.fields()["offset"])

    async def offset(self, broker: str) -> int:
        answer = await self.peers.request(broker, codes.GET_ALL_CONSUMER_OFFSET, timeout_s=SECONDS)
        table = ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table
        return table.get(f"{TOPIC}@{GROUP}", {}).get(0, -1)

    async def is_caught_up(self, master: str, slave: str) -> bool:
        code = codes.GET_BROKER_HA_STATUS
        infos = [
            HARuntimeInfo.decode((await self.peers.request(one, code, timeout_s=SECONDS)).body)
            for one in (master, slave)
        ]
        end = infos[1].ha_client_runtime_info.max_offset
        return 0 < end == infos[0].master_commit_log_max_offset


async def test_a_slave_acts_for_its_master_which_takes_everything_back(
    brokers: Brokers, peers: Peers
) -> None:
    master, slave, other = brokers
    asked = Asked(peers, master.namesrv)
    for broker in (master, other):
        answer = await peers.request(
            broker.broker, codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(TOPIC, 1, 1, 6),
            timeout_s=SECONDS,
        )  # fmt: skip
        assert answer.code == codes.SUCCESS
    group = SubscriptionGroupConfig(group_name=GROUP).encode()
    code = codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    answer = await peers.request(master.broker, code, None, group, SECONDS)
    assert answer.code == codes.SUCCESS, answer.remark
    for pairs in ({}, {}, {}, {"DELAY": "1"}, {"TIMER_DELAY_SEC": f"{DUE_SECONDS}"}):
        await asked.send(master.broker, pairs)
    await asked.in_wheel(master)
    await until(lambda: asked.is_caught_up(master.broker, slave.broker), "the slave's log")
    if isinstance(slave, JavaCluster):
        assert slave.broker_process is not None
        slave.broker_process.ask("sync", "synced", SECONDS)

    async def has_tables() -> bool:
        code = codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer = await peers.request(slave.broker, code, timeout_s=SECONDS)
        groups = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
        code = codes.GET_ALL_TOPIC_CONFIG
        answer = await peers.request(slave.broker, code, timeout_s=SECONDS)
        topics = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
        return GROUP in groups and TOPIC in topics

    await until(has_tables, "the slave's topics and groups")
    before = await asked.end(master.broker)
    await asyncio.to_thread(master.stop_broker, kill=True)

    async def acts() -> bool:
        return await asked.master_on_route() == slave.broker

    await until(acts, "the route shows the slave as acting master")
    report = UpdateConsumerOffset(GROUP, TOPIC, 0, 2)
    answer = await peers.request(
        slave.broker, codes.UPDATE_CONSUMER_OFFSET, report, timeout_s=SECONDS
    )
    assert answer.code == codes.SUCCESS, answer.remark

    async def escaped() -> bool:
        return await asked.end(other.broker) >= LATE

    await until(escaped, "what was due is on the other broker")
    await asyncio.to_thread(master.start_broker)

    async def is_back() -> bool:
        return await asked.master_on_route() == master.broker

    await until(is_back, "the route shows the master")

    # RocketMQ's master creates topics at its start, which registers it before it takes these back.
    async def has_offset() -> bool:
        return await asked.offset(master.broker) == 2

    await until(has_offset, "the master has the offset that the slave took")
    assert await asked.end(master.broker) >= before == 3
