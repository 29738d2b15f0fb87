"""A master is lost with its disk, several times; each time its slave is made the master by hand.

`AEROBEE_PROMOTIONS` is the number of lost masters, `AEROBEE_KILLS_SEED` the seed of the moments.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from random import Random

from aerobee.harness.child import Child
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.ha import HARuntimeInfo
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.store.inspect.check import check

from ..waiting import PROCESS, until
from .load import QUEUES, SEED, TOPIC, Load

PROMOTIONS = int(os.environ.get("AEROBEE_PROMOTIONS", "2"))
ACKNOWLEDGED_MAX = 800  # messages before a master is lost
STILL_SECONDS = 0.2
SETTINGS = {
    "httpPort": "-1",
    "listenPort": "0",
    "brokerName": "pair",
    # A new slave copies the log from its last file on: here one file holds the whole log.
    "mappedFileSizeCommitLog": str(64 << 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
ROLES = {
    "master": {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": "2",
        "slaveTimeout": str(int(PROCESS * 1000)),
    },
    "slave": {"brokerRole": "SLAVE", "brokerId": "1"},
}


class Senders(Load):
    """Producers only: a consumer may see messages of a master that are on no slave yet."""

    async def _read(self, peers: Peers, address: str) -> None:
        with suppress(OSError):  # until the master is killed
            while True:
                await peers.request(address, codes.GET_BROKER_HA_STATUS, timeout_s=PROCESS)
                await asyncio.sleep(0.1)

    async def until_lost(
        self, address: str, acknowledged: int, master: Child, slave: Child
    ) -> None:
        """Send until `acknowledged` more messages are acknowledged, then kill the master.

        Before the kill the slave is stopped; meanwhile no message may be acknowledged.
        """
        most = self.acknowledged + acknowledged
        work = asyncio.create_task(self.until(address, 1 << 62, master))
        await until(
            lambda: self.acknowledged >= most,
            lambda: f"{most - self.acknowledged} acknowledgements are missing",
            seconds=PROCESS,
        )
        slave.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(STILL_SECONDS)
        self.enough.set()
        await work
        slave.process.send_signal(signal.SIGCONT)


@contextmanager
def running(folder: Path, name: str, *words: str) -> Iterator[tuple[Child, str]]:
    """Runs one of our daemons in a process of its own; yields the process and its address."""
    command = [sys.executable, "-m", "aerobee.scripts.cli", *words]
    environment = {key: "" for key in os.environ if key.startswith("AEROBEE_")}
    with Child(command, folder / f"{name}.stderr", cwd=folder, env=environment) as child:
        ready = child.wait_line(lambda line: "ready" in line, PROCESS)
        found = re.search(r"on (127\.0\.0\.1:\d+)", ready)
        assert found is not None, ready
        yield child, found[1]


def broker(
    folder: Path, namesrv: str, role: str, store: Path
) -> AbstractContextManager[tuple[Child, str]]:
    words = ["broker", "-n", namesrv]
    for key, value in (SETTINGS | ROLES[role] | {"storePathRootDir": str(store)}).items():
        words += ["--set", f"{key}={value}"]
    return running(folder, f"{store.name}-{role}", *words)


async def has_slave(address: str) -> None:
    """Returns once a slave has the whole log of this master."""
    peers = Peers()
    info = HARuntimeInfo()

    async def has_all() -> bool:
        nonlocal info
        answer = await peers.request(address, codes.GET_BROKER_HA_STATUS, timeout_s=PROCESS)
        info = HARuntimeInfo.decode(answer.body)
        return any(slave.diff == 0 for slave in info.ha_connection_info)

    await until(has_all, lambda: f"{info}", seconds=PROCESS, pause=0.05)
    await peers.close()


async def make_topic(address: str) -> None:
    peers = Peers()
    header = UpdateTopic(TOPIC, QUEUES, QUEUES, 6)
    answer = await peers.request(address, codes.UPDATE_AND_CREATE_TOPIC, header, timeout_s=PROCESS)
    assert answer.code == codes.SUCCESS, answer.remark
    await peers.close()


async def test_a_promoted_slave_has_every_acknowledged_message(tmp_path: Path) -> None:
    draw = Random(f"{SEED} promotion")
    load = Senders()
    stores = [tmp_path / "a", tmp_path / "b"]
    words = ["namesrv", "--listen-port", "0", "--set", "httpPort=-1", "--set", "kvConfigPath="]
    with running(tmp_path, "namesrv", *words) as (_, namesrv):
        for number in range(PROMOTIONS):
            old, new = stores
            with broker(tmp_path, namesrv, "master", old) as (master, address):
                if number:
                    await load.read_all(address)
                    load.ledger.check()
                else:
                    await make_topic(address)
                with broker(tmp_path, namesrv, "slave", new) as (slave, _):
                    await has_slave(address)
                    count = draw.randrange(100, ACKNOWLEDGED_MAX)
                    await load.until_lost(address, count, master, slave)
                    if number % 2:
                        assert slave.stop() == 0
                    else:
                        slave.process.kill()
            shutil.rmtree(old)
            assert not [one.line for one in check(new).findings if one.is_damage]
            stores.reverse()
        with broker(tmp_path, namesrv, "master", stores[0]) as (last, address):
            await load.read_all(address)
            load.ledger.check()
            assert last.stop() == 0
    assert load.acknowledged > 50 * PROMOTIONS
    for path in tmp_path.glob("*.stderr"):  # noqa: ASYNC240
        assert "Traceback" not in path.read_text(), path.read_text()
