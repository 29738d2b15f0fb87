"""Three brokers of one name under two controllers that keep their state in a real etcd, all
processes: the leading controller is killed, and then it falls silent together with the master.

Each round prints how long other brokers took until they acknowledged a message.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from aerobee.client import Consumer, Producer
from aerobee.client.errors import AerobeeError
from aerobee.console.findings.replicas import Replicas, leader_of, replicas_of
from aerobee.harness.child import Child
from aerobee.harness.etcd_side import LACK, EtcdProcess, program
from aerobee.harness.java_side import free_broker_port, free_ports

from ..waiting import PROCESS, until
from .test_member import (
    ACKNOWLEDGED,
    MEMBERS,
    NAME,
    PRODUCERS,
    QUEUES,
    TOPIC,
    Load,
    Set,
    make_topic,
    running,
)

pytestmark = pytest.mark.skipif(program() is None and not os.environ.get("CI"), reason=LACK)


class EtcdSet(Set):
    """The brokers, and the controllers by address; a controller that starts again keeps it."""

    def __init__(self, folder: Path, namesrv: str, etcd: str, stack: ExitStack) -> None:
        self.controllers: dict[str, Child] = {}
        self.etcd = etcd
        self.stack = stack
        ports = free_ports(2)
        super().__init__(folder, namesrv, ";".join(f"127.0.0.1:{port}" for port in ports))

    def start_controller(self, address: str) -> None:
        words = ["controller", "--listen-port", address.rpartition(":")[2]]
        for key, value in {
            "httpPort": "-1",
            "controllerType": "etcd",
            "controllerEtcdEndpoints": self.etcd,
            "controllerDLegerSelfId": address.rpartition(":")[2],
        }.items():
            words += ["--set", f"{key}={value}"]
        name = f"controller-{address.rpartition(':')[2]}"
        child, _ = self.stack.enter_context(running(self.folder, name, *words))
        self.controllers[address] = child

    async def leader(self, other_than: str = "") -> str:
        """The controller that leads."""
        others = [one for one in self.controllers if one != other_than]
        found = ""

        async def leads() -> bool:
            nonlocal found
            with suppress(AerobeeError):  # none leads yet
                found = await leader_of(self.peers, others)
            return found not in ("", other_than)

        await until(leads, lambda: f"the leader is {found!r}", seconds=PROCESS, pause=0.1)
        return found

    async def state(self) -> Replicas:
        return await replicas_of(self.peers, self.controller.split(";"), NAME)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[EtcdSet]:
    namesrv = ["namesrv", "--listen-port", "0", "--set", "httpPort=-1", "--set", "kvConfigPath="]
    etcd = EtcdProcess(tmp_path / "etcd")
    with ExitStack() as stack:
        await asyncio.to_thread(etcd.start)
        stack.callback(etcd.stop)
        _, names = stack.enter_context(running(tmp_path, "namesrv", *namesrv))
        found = EtcdSet(tmp_path, names, etcd.url, stack)
        try:
            for address in found.controller.split(";"):
                await asyncio.to_thread(found.start_controller, address)
            for number in range(MEMBERS):
                await asyncio.to_thread(found.start, number, free_broker_port())
            yield found
        finally:
            found.stop()
            await found.peers.close()
    for path in tmp_path.glob("*.stderr"):  # noqa: ASYNC240
        assert "Traceback" not in path.read_text(), path.read_text()


async def test_no_acknowledged_message_is_lost_with_the_leading_controller(
    brokers: EtcdSet,
) -> None:
    master = await brokers.whole()
    await make_topic(brokers, master)
    load = Load(brokers.namesrv)
    consumer = Consumer(brokers.namesrv, group="g", topics=[TOPIC], start="earliest")
    consumer.listener(concurrency=20)(load.on_message)
    async with Producer(brokers.namesrv) as producer, consumer:
        load.may_send.set()
        tasks = [asyncio.create_task(load.produce(producer, n % QUEUES)) for n in range(PRODUCERS)]
        await load.until_acknowledged(ACKNOWLEDGED)

        begin, leader = time.monotonic(), await brokers.leader()
        brokers.controllers[leader].kill()
        await brokers.leader(other_than=leader)
        await load.until_acknowledged(ACKNOWLEDGED)
        print(f"leading controller killed: longest pause {load.pause_after(begin):.2f} s")
        await brokers.until(lambda state: state.master_id is not None)
        await asyncio.to_thread(brokers.start_controller, leader)

        leader, master = await brokers.leader(), await brokers.whole()
        silent = [brokers.controllers[leader].process, brokers.brokers[master][1].process]
        begin = time.monotonic()
        for process in silent:
            process.send_signal(signal.SIGSTOP)
        await load.until_acknowledged(ACKNOWLEDGED)
        print(
            "master and leading controller silent: others write again after "
            f"{load.pause_after(begin):.2f} s"
        )
        for process in silent:
            process.send_signal(signal.SIGCONT)
        await load.pause()
        await load.check(brokers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await load.until_consumed()
