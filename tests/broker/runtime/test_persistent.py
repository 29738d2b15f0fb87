"""Persisted offsets: written after the messages they refer to, never beyond the queue."""

import json
import shutil
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.store.files import disk, json_file
from aerobee.store.files.segment import Segment

from ..conftest import Caller, Config, Start, records


async def commit(caller: Caller, topic: str, offset: int) -> None:
    await caller.heartbeat(topics={topic: "*"})
    fields = {"topic": topic, "consumerGroup": "cg", "queueId": "0", "commitOffset": str(offset)}
    assert (await caller.ask(codes.UPDATE_CONSUMER_OFFSET, fields)).code == 0


async def committed(caller: Caller, topic: str) -> int | None:
    fields = {"topic": topic, "consumerGroup": "cg", "queueId": "0"}
    answer = await caller.ask(codes.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.fields()["offset"]) if answer.code == 0 else None


async def test_offsets_are_written_after_the_log_is_synced(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, save = Segment.sync, json_file.save

    def noting_sync(segment: Segment) -> None:
        sync(segment)
        done.append(segment.path.parent.name)

    def noting_save(path: Path, text: bytes | str) -> None:
        save(path, text)
        done.append(path.name)

    monkeypatch.setattr(Segment, "sync", noting_sync)
    monkeypatch.setattr(json_file, "save", noting_save)
    await caller.send("T")
    await commit(caller, "T", 1)
    end = broker.store.log_end
    done.clear()
    await broker.saving.save(broker.offsets)
    assert broker.store.durable_end >= end
    assert "consumerOffset.json" in done
    assert "commitlog" not in done[done.index("consumerOffset.json") :]


async def test_offsets_are_not_written_after_the_log_has_failed(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caller.send("T")
    await commit(caller, "T", 1)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(disk.current, "sync_data", broken)
        await caller.send("T")
        await broker.syncer.reach(broker.store.log_end)
    await commit(caller, "T", 2)
    await broker.saving.save(broker.offsets)
    path = broker.root / "config" / "consumerOffset.json"
    table = json.loads(path.read_bytes())["offsetTable"] if path.exists() else {}
    assert table.get("T@cg", {"0": 0})["0"] < 2
    assert await committed(caller, "T") == 2  # a query still gets it


async def test_a_start_cuts_offsets_beyond_the_end_of_their_queue(
    start: Start, config: Config
) -> None:
    broker = await start(config())
    caller = Caller(broker)
    for _ in range(3):
        await caller.send("T")
    await commit(caller, "T", 3)
    await caller.send("T", DELAY="1")
    await caller.peers.close()
    await broker.stop()
    folder = broker.root / "config"
    json_file.save(
        folder / "consumerOffset.json", json.dumps({"offsetTable": {"T@cg": {"0": 9, "1": 2}}})
    )
    json_file.save(folder / "delayOffset.json", json.dumps({"offsetTable": {"1": 50, "2": 7}}))
    broker = await start(config())
    caller = Caller(broker)
    assert await committed(caller, "T") == 3
    assert broker.delays.offsets == {1: 1, 2: 0}
    # Written at once: by the next crash the queues may have grown past the old offsets.
    assert json.loads((folder / "consumerOffset.json").read_bytes())["offsetTable"] == {
        "T@cg": {"0": 3, "1": 0}
    }
    assert json.loads((folder / "delayOffset.json").read_bytes())["offsetTable"] == {
        "1": 1,
        "2": 0,
    }
    await caller.peers.close()


async def test_a_recreated_topic_has_no_old_messages_or_offsets(
    start: Start, config: Config, tmp_path: Path
) -> None:
    broker = await start(config())
    caller = Caller(broker)
    for _ in range(3):
        await caller.send("T")
    await commit(caller, "T", 3)
    assert (await caller.ask(codes.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
    await caller.send("T", b"new")
    # The store as a kill would leave it: a copy.
    shutil.copytree(broker.root, tmp_path / "copy")
    await caller.peers.close()
    killed = await start(config(store_path_root_dir=str(tmp_path / "copy")))
    caller = Caller(killed)
    assert [record.body for record in records(await caller.pull("T"))] == [b"new"]
    assert await committed(caller, "T") in (None, 0)
    await caller.peers.close()
