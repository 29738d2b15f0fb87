"""`aerobee doctor` against a name server and a broker."""

import argparse
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.client.admin.admin import Admin
from aerobee.client.blocking import Message, Producer
from aerobee.console.findings.examine import examine
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.bodies.subscription import subscription
from aerobee.scripts.commands.doctor import doctor
from aerobee.store.engine.messages import Message as StoreMessage
from aerobee.testing.cluster import LocalCluster

from ..command import Inside

TEXT = argparse.Namespace(json=False, grpc=[])


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    servers = NameServer(NamesrvConfig(listen_port=0))
    await servers.start()
    broker = Broker(
        BrokerConfig(
            broker_name="broker-a",
            namesrv_addr=f"127.0.0.1:{servers.port}",
            listen_port=0,
            store_path_root_dir=str(tmp_path / "store"),
            mapped_file_size_commit_log=1 << 20,
            max_hash_slot_num=1_000,
            max_index_num=4_000,
        )
    )
    await broker.start()
    monkeypatch.setattr(broker.store, "disk_ratio", lambda: 0.5)
    yield broker
    await broker.stop()
    await servers.stop()


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with Admin(broker.config.namesrv_addr) as admin:
        yield admin


async def join(peers: Peers, broker: Broker, client_id: str, tags: str) -> None:
    """A client becomes a member of group "split"."""
    wanted = [subscription("T", tags)]
    consumer = ConsumerData("split", "CONSUME_PASSIVELY", "CLUSTERING", None, wanted)
    body = HeartbeatData(client_id, [], [consumer]).encode()
    answer = await peers.request(broker.address, codes.HEART_BEAT, None, body, 20)
    assert answer.code == 0


async def test_a_cluster_that_is_well_has_no_findings(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await examine(admin) == []
    assert await doctor(admin, TEXT) == 0
    assert capsys.readouterr().out == "nothing found\n"
    assert await doctor(admin, argparse.Namespace(json=True, grpc=[])) == 0
    assert capsys.readouterr().out == ""


async def test_files_that_stay_for_a_group_and_a_group_that_holds_nothing_are_found(
    broker: Broker, admin: Admin
) -> None:
    await admin.create_topic("T", 1)
    for _ in range(3):
        message = StoreMessage(("T", 0), 0, 0, 1, bytes(8), bytes(600_000), b"", 0)
        broker.store.put(message)
    await broker.syncer.sync()
    for path in (broker.root / "commitlog").iterdir():
        os.utime(path, (0, 0))
    broker.groups.find("lake")
    broker.offsets.commit("T", "lake", 0, 0)
    names = {"retainUntilConsumedBy": "lake;typo"}
    await admin.update_broker_config(broker.address, names)
    broker.cleaner.delete_expired()
    await broker.cleaner.finished()
    found = [str(each) for each in await examine(admin) if str(each.where) == "broker broker-a"]
    assert len(found) == 2
    assert "2 MiB of its log are past fileReservedTime, the oldest since 1970-" in found[0]
    assert "stay until group lake has read them" in found[0]
    assert "retainUntilConsumedBy names group typo, which has no offset here" in found[1]
    broker.offsets.commit("T", "lake", 0, 3)
    broker.cleaner.delete_expired()
    await broker.cleaner.finished()
    (left,) = [each for each in await examine(admin) if str(each.where) == "broker broker-a"]
    assert "group typo" in str(left)


async def test_what_is_wrong_in_a_cluster_is_found(
    broker: Broker, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in ("T", "Unread"):
        await admin.create_topic(topic, 1)
        broker.store.put(StoreMessage((topic, 0), 0, 0, 1, bytes(8), b"body", b"", 0))
    broker.groups.find("away")
    broker.offsets.commit("T", "away", 0, 0)
    one, two = Peers(), Peers()
    await join(one, broker, "c1", "a")
    await join(two, broker, "c2", "b")
    assert await doctor(admin, TEXT) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["group away", "group split", "topic Unread"]
    assert "no member online, and at most 1 message waits" in lines[0]
    assert "topic T: c1: tags a / c2: tags b; give all members the same" in lines[1]
    assert await doctor(admin, argparse.Namespace(json=True, grpc=[])) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sorted(each) for each in found] == [["do", "what", "where"]] * 3
    await one.close()
    await two.close()


async def test_a_broker_that_is_away_is_a_finding(broker: Broker, admin: Admin) -> None:
    address = broker.address
    await broker.server.stop()
    (found,) = await examine(admin)
    assert found.where == "broker broker-a"
    assert f"does not answer at {address}" in found.what


def test_a_broker_whose_clock_is_ahead_is_a_finding(inside: Inside) -> None:
    with LocalCluster() as cluster:
        assert "its clock" not in inside("doctor", "-n", cluster.name_server)[1]
        cluster.advance(hours=2)
        code, out, _ = inside("doctor", "-n", cluster.name_server)
    assert code == 1
    assert re.search(r"broker broker-a: its clock is 7,(200|199) s ahead of the one of this", out)


def test_a_topic_that_the_first_send_made_lives_on_one_of_two_brokers(inside: Inside) -> None:
    with LocalCluster(brokers=2) as cluster:
        with Producer(cluster.name_server) as producer:
            producer.send(Message("made-by-a-send", b"x"))
        code, out, _ = inside("doctor", "-n", cluster.name_server)
        assert code == 1
        assert "topic made-by-a-send: it is on broker broker-" in out
        assert "alone, of the 2 in DefaultCluster" in out
        code, _, _ = inside(
            "topics", "create", "made-by-a-send", "--queues", "4", "-n", cluster.name_server
        )
        assert code == 0
        assert "alone, of the 2" not in inside("doctor", "-n", cluster.name_server)[1]


async def test_two_masters_of_a_name_are_a_finding_that_names_both(
    broker: Broker, admin: Admin, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(
        broker.config, store_path_root_dir=str(tmp_path / "other"), allow_duplicate_master=True
    )
    other = Broker(settings)
    await other.start()
    await broker.registration.register_all()
    [found] = await examine(admin)
    assert found.where == "broker broker-a"
    first, second = sorted((broker.address, other.address))
    assert found.what.startswith(f"two masters of broker-a run, {first} and {second}: ")
    assert found.do.startswith("stop one of them")
    await other.stop()


async def test_a_name_server_without_a_broker_is_a_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = NameServer(NamesrvConfig(listen_port=0))
    await servers.start()
    try:
        async with Admin(f"127.0.0.1:{servers.port}") as admin:
            assert await doctor(admin, TEXT) == 1
    finally:
        await servers.stop()
    assert capsys.readouterr().out.startswith("name server: no broker is registered, so")
