"""A master and a slave that follows its log, one of them ours and the other the real one. The files
become equal byte for byte, and an acknowledged message is on the slave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

import pytest
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    JavaCluster,
)
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.ha import HARuntimeInfo
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.store.inspect.check import check

from .programs import SECONDS
from .support import until

TOPIC = "Replicated"
SEGMENT = 256 << 10
SETTINGS: dict[str, str | int] = SMALL_FILES | {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    "mappedFileSizeCommitLog": SEGMENT,
    "haSendHeartbeatInterval": 500,  # a real slave sends nothing before this interval has passed
    "slaveTimeout": 60_000,
}
COUNT = 300
AT_ONCE = 50


@dataclass
class Pair:
    """A SYNC_MASTER that waits for its slave, and the slave."""

    master: AerobeeCluster | JavaCluster
    slave: AerobeeCluster | JavaCluster

    def log_files(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The files of both logs, without the files that a real broker allocates in advance."""
        both = []
        for cluster in (self.master, self.slave):
            files = sorted((cluster.store / "commitlog").iterdir())
            found = {path.name: path.read_bytes() for path in files}
            both.append({name: data for name, data in found.items() if data.strip(b"\0")})
        return both[0], both[1]


@pytest.fixture(
    scope="module",
    params=[pytest.param("ours has a java slave", marks=pytest.mark.smoke), "java has our slave"],
)
def pair(
    request: pytest.FixtureRequest, java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("replication")
    slave: dict[str, str | int] = {"brokerRole": "SLAVE", "brokerId": 1}
    found: Pair
    if request.param.startswith("ours"):
        ours = AerobeeCluster(folder / "master", SETTINGS)
        slave |= {"namesrvAddr": ours.namesrv}
        found = Pair(ours, JavaCluster(folder / "slave", SETTINGS | slave, flags=TEST_BROKER_FLAGS))
    else:
        java = JavaCluster(folder / "master", SETTINGS, flags=TEST_BROKER_FLAGS)
        slave |= {"namesrvAddr": java.namesrv}
        found = Pair(java, AerobeeCluster(folder / "slave", SETTINGS | slave))
    try:
        found.master.start()
        start_slave(found)
        yield found
    finally:
        found.slave.stop()
        found.master.stop()


def start_slave(pair: Pair) -> None:
    pair.slave.start_broker()
    asyncio.run(joined(pair))


async def joined(pair: Pair) -> None:
    """Returns once the slave has all the bytes of its master's log."""
    peers = Peers()

    async def has_all() -> bool:
        status = await ha_status(peers, pair.master.broker)
        return any(one.diff == 0 for one in status.ha_connection_info)

    await until(has_all, "the slave has its master's log")
    await peers.close()


async def ha_status(peers: Peers, broker: str) -> HARuntimeInfo:
    answer = await peers.request(broker, codes.GET_BROKER_HA_STATUS, None, b"", SECONDS)
    return HARuntimeInfo.decode(answer.body)


async def send(peers: Peers, pair: Pair, body: bytes, *, batch: bool = False, **pairs: str) -> int:
    text = properties.encode(pairs).decode()
    header = SendMessage("pg", TOPIC, "TBW102", 4, 0, 0, 1, 0, text, 0, batch=batch)
    code = codes.SEND_BATCH_MESSAGE if batch else codes.SEND_MESSAGE_V2
    answer = await peers.request(pair.master.broker, code, header, body, SECONDS)
    while answer.code == codes.SYSTEM_BUSY:  # a real broker on a busy machine
        answer = await peers.request(pair.master.broker, code, header, body, SECONDS)
    return answer.code


async def fill(peers: Peers, pair: Pair, seed: int) -> list[int]:
    """Sends messages of all kinds, over several files; returns the response codes."""
    draw = Random(seed)
    orders: list[tuple[bytes, dict[str, Any]]] = []
    for number in range(COUNT):
        body = draw.randbytes(draw.choice([0, 1, 30, 500, 9_000]) + 1)
        orders.append((body, {"KEYS": f"k{number}", "UNIQ_KEY": f"U{seed}{number:020d}"}))
    entries = [Entry(0, b"%d" % number, b"TAGS\x01a\x02") for number in range(40)]
    orders.append((encode_batch(entries), {"batch": True}))
    orders.append((b"half", {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": f"H{seed}"}))
    orders.append((b"x" * 200_000, {}))
    orders.append((b"later", {"DELAY": "18"}))
    found = []
    for at in range(0, len(orders), AT_ONCE):
        sends = [send(peers, pair, body, **more) for body, more in orders[at : at + AT_ONCE]]
        found += await asyncio.gather(*sends)
    return found


async def test_an_acknowledged_message_is_on_the_slave_and_the_files_are_the_same(
    pair: Pair, peers: Peers
) -> None:
    assert set(await fill(peers, pair, 1)) == {codes.SUCCESS}
    ends = (await ha_status(peers, pair.master.broker)).master_commit_log_max_offset
    slave = (await ha_status(peers, pair.slave.broker)).ha_client_runtime_info
    assert slave.max_offset == ends > 3 * SEGMENT
    mine, others = pair.log_files()
    assert len(mine) >= 4
    assert mine == others


async def test_both_masters_report_the_same_replication_status(pair: Pair, peers: Peers) -> None:
    texts = []
    for cluster in (pair.master, pair.slave):
        answer = await peers.request(cluster.broker, codes.GET_BROKER_HA_STATUS, None, b"", SECONDS)
        texts.append(json.loads(answer.body or b""))
    master, slave = texts
    assert master.keys() == slave.keys()
    (one,) = master["haConnectionInfo"]
    assert one.keys() == {
        "addr", "diff", "inSync", "slaveAckOffset", "transferFromWhere", "transferredByteInSecond"
    }  # fmt: skip
    assert (one["diff"], one["inSync"], master["inSyncSlaveNums"]) == (0, True, 1)
    assert one["slaveAckOffset"] == one["transferFromWhere"]
    client = slave["haClientRuntimeInfo"]
    assert client.keys() == master["haClientRuntimeInfo"].keys() | {"masterAddr"}
    host, port = pair.master.broker.split(":")
    assert client["masterAddr"] == f"{host}:{int(port) + 1}"
    assert client["maxOffset"] == one["slaveAckOffset"]


async def test_replication_resumes_after_a_kill_of_our_side(pair: Pair, peers: Peers) -> None:
    async def slave_end() -> int:
        found: int = (await ha_status(peers, pair.slave.broker)).ha_client_runtime_info.max_offset
        return found

    async def fill_on() -> None:
        for seed in count(2):
            assert set(await fill(peers, pair, seed)) == {codes.SUCCESS}
            if is_over.is_set():
                return

    end, is_over = await slave_end(), asyncio.Event()
    filling = asyncio.ensure_future(fill_on())

    async def is_amid() -> bool:
        return await slave_end() > end + SEGMENT

    await until(is_amid, "the slave follows")
    if isinstance(pair.master, AerobeeCluster):
        await asyncio.to_thread(pair.master.stop_broker, kill=True)
        with pytest.raises(OSError, match="127"):
            await filling
        await asyncio.to_thread(pair.master.start_broker)
        await joined(pair)
        assert set(await fill(peers, pair, 1)) == {codes.SUCCESS}
    else:
        await asyncio.to_thread(pair.slave.stop_broker, kill=True)
        await asyncio.to_thread(start_slave, pair)  # nothing is acknowledged until it is there
        is_over.set()
        await filling
    mine, others = pair.log_files()
    assert mine == others
    if isinstance(pair.slave, AerobeeCluster):
        await asyncio.to_thread(pair.slave.stop_broker, kill=False)
        assert not check(pair.slave.store).is_damaged
