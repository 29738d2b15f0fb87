"""A master is killed under load, its slave acts for it, the master returns: by our own client no
acknowledged message is missing, due meanwhile or not, and offsets go on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.client import Admin, Consumer, Message, Producer, SendStatus
from aerobee.client.errors import AerobeeError
from aerobee.harness.clusters import BROKER_NAME, SMALL_FILES, AerobeeCluster
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.headers.namesrv import GetRoute

from ..waiting import PROCESS, until

TOPIC, GROUP = "Acting", "ActingGroup"
MESSAGES = 300
LEVELS = (0, 0, 1, 2)  # at once, after 5 s, after 10 s
SETTINGS: dict[str, str | int] = SMALL_FILES | {
    "messageDelayLevel": "5s 10s",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[AerobeeCluster, AerobeeCluster, AerobeeCluster]]:
    """A master with its name server, its slave, and a broker of another name."""
    master = AerobeeCluster(tmp_path / "master", SETTINGS)
    with Path(master.namesrv_file).open("a") as file:
        file.write("supportActingMaster=true\n")
    shared = SETTINGS | {"namesrvAddr": master.namesrv}
    slave = AerobeeCluster(tmp_path / "slave", shared | {"brokerRole": "SLAVE", "brokerId": 1})
    other = AerobeeCluster(
        tmp_path / "other", shared | {"brokerName": "another-broker", "brokerRole": "ASYNC_MASTER"}
    )
    try:
        master.start()
        other.start_broker()
        slave.start_broker()
        yield master, slave, other
    finally:
        for one in (slave, other, master):
            one.stop()


class Asked:
    """Questions to the servers."""

    def __init__(self, namesrv: str) -> None:
        self.peers = Peers()
        self.namesrv = namesrv

    async def master(self) -> str | None:
        """The address that the topic's route shows as the master of the pair."""
        answer = await self.peers.request(
            self.namesrv, codes.GET_ROUTEINFO_BY_TOPIC, GetRoute(TOPIC), timeout_s=PROCESS
        )
        if answer.code == codes.SUCCESS:
            for broker in TopicRouteData.decode(answer.body).broker_datas:
                if broker.broker_name == BROKER_NAME:
                    return broker.broker_addrs.get(0)
        return None

    async def consumed(self, broker: str) -> int:
        """The sum of the group's offsets there."""
        code = codes.GET_ALL_CONSUMER_OFFSET
        answer = await self.peers.request(broker, code, timeout_s=PROCESS)
        table = ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table
        return sum(table.get(f"{TOPIC}@{GROUP}", {}).values())


async def test_no_acknowledged_message_is_lost_while_a_slave_acts_and_its_master_returns(
    brokers: tuple[AerobeeCluster, AerobeeCluster, AerobeeCluster],
) -> None:
    master, slave, _ = brokers
    asked = Asked(master.namesrv)
    async with Admin(master.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=2)
    acknowledged: set[str] = set()
    seen: list[str] = []

    async def receive(consumer: Consumer) -> None:
        async for message in consumer:
            seen.append(message.keys[0])
            await message.ack()

    def missing() -> set[str]:
        return acknowledged - set(seen)

    async def until_seen() -> None:
        await until(
            lambda: not missing(), lambda: f"missing {sorted(missing())[:9]}", seconds=PROCESS
        )

    async def until_master(address: str) -> None:
        shown: str | None = None

        async def is_it() -> bool:
            nonlocal shown
            shown = await asked.master()
            return shown == address

        await until(is_it, lambda: f"the route shows {shown}, not {address}", seconds=PROCESS)

    async def send(producer: Producer, first: int, last: int) -> None:
        for number in range(first, last):
            key = str(number)
            message = Message(TOPIC, b"body", keys=[key], delay_level=LEVELS[number % 4])
            try:
                receipt = await producer.send(message)
            except AerobeeError:
                continue
            if receipt.status == SendStatus.OK:
                acknowledged.add(key)

    consumer = Consumer(master.namesrv, group=GROUP, topics=[TOPIC], start="earliest")
    async with consumer, Producer(master.namesrv) as producer:
        task = asyncio.create_task(receive(consumer))
        await send(producer, 0, MESSAGES)
        sending = asyncio.create_task(send(producer, MESSAGES, 2 * MESSAGES))
        await asyncio.to_thread(master.stop_broker, kill=True)
        await sending

        await until_master(slave.broker)
        await until_seen()
        at_slave = await asked.consumed(slave.broker)
        await asyncio.to_thread(master.start_broker)

        await until_master(master.broker)

        async def has_offsets() -> bool:
            return await asked.consumed(master.broker) >= at_slave

        await until(has_offsets, f"the master's offsets are not {at_slave}", seconds=PROCESS)
        await send(producer, 2 * MESSAGES, 2 * MESSAGES + 20)
        await until_seen()
        task.cancel()
    await asked.peers.close()
    assert len(acknowledged) >= MESSAGES
