"""Groups that read far behind the end of the log are slowed down, where that is switched on."""

import asyncio
import json
from typing import Any

import pytest
from aerobee.broker.pull.cold_data import FORGET_MS, HOLD_MS, PERIOD_MS
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.rpc_latency import Rpc
from aerobee.protocol.command import Command

from ...clocks import Clock
from ...waiting import until
from ..conftest import Caller, Config, Run, records

ON: dict[str, Any] = {
    "cold_data_flow_control_enable": True,
    "cg_cold_read_threshold": 500,
}
BODY = bytes(300)


class Reader:
    """A client of a broker in whose log everything is cold."""

    def __init__(self, broker: Broker, caller: Caller, clock: Clock) -> None:
        self.broker, self.caller, self.clock = broker, caller, clock

    async def info(self) -> dict[str, Any]:
        answer = await self.caller.ask(codes.GET_COLD_DATA_FLOW_CTR_INFO)
        assert answer.code == codes.SUCCESS
        found: dict[str, Any] = json.loads(answer.body or b"")
        return found

    async def pull(self, offset: int = 0, **more: Any) -> Command:
        return await self.caller.pull("T", offset, **more)

    async def later(self, ms: int) -> None:
        self.clock.ms += ms
        await self.broker.catch_up()


@pytest.fixture
async def reader(run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Reader:
    broker, caller = await run(config(**ON))
    monkeypatch.setattr(broker.store, "memory_part", lambda percent: 0)  # nothing is hot
    for _ in range(4):
        await caller.send("T", BODY)
    return Reader(broker, caller, clock)


async def test_what_a_group_reads_of_cold_data_is_in_the_table_until_it_reads_nothing_more(
    reader: Reader,
) -> None:
    assert (await reader.info())["runtimeTable"] == {}
    answer = await reader.pull(0, max_messages=1)
    size = len(answer.body or b"")
    info = await reader.info()
    assert info["runtimeTable"]["cg"]["coldAcc"] == info["globalAcc"] == size > 300
    assert info["runtimeTable"]["cg"]["lastColdReadTimeMills"] == reader.clock.ms
    assert (info["cgColdReadThreshold"], info["globalColdReadThreshold"]) == (500, 100 << 20)
    await reader.later(PERIOD_MS)
    info = await reader.info()
    assert (info["runtimeTable"]["cg"]["coldAcc"], info["globalAcc"]) == (0, 0)
    await reader.later(FORGET_MS)
    assert (await reader.info())["runtimeTable"] == {}


async def test_a_pull_consumer_over_its_threshold_waits_and_is_given_one_message(
    reader: Reader,
) -> None:
    assert len(records(await reader.pull(0, max_messages=2))) == 2  # it had nothing so far
    waiting = asyncio.create_task(reader.pull(2, max_messages=32))
    await until(lambda: reader.broker.pulls.cold.delayed.count)
    await reader.later(HOLD_MS - 1)
    assert not waiting.done()
    await reader.later(1)
    assert len(records(await waiting)) == 1
    latency = reader.broker.server.scheduler.latency
    assert latency is not None
    waited = {rpc for rpc, found in latency.histograms() if found.sum >= HOLD_MS}
    assert waited == {Rpc(codes.PULL_MESSAGE, codes.SUCCESS, False, False)}  # no long polling


async def test_a_push_consumer_over_its_threshold_is_told_that_the_broker_is_busy(
    reader: Reader,
) -> None:
    await reader.caller.heartbeat(topics={"T": "*"})
    assert len(records(await reader.pull(0, max_messages=2))) == 2
    answer = await reader.pull(2)
    assert answer.code == codes.SYSTEM_BUSY
    assert "This consumer group is reading cold data. It has been flow control" in (
        answer.remark or ""
    )
    await reader.later(PERIOD_MS)  # then it may read again
    assert (await reader.pull(2)).code == codes.SUCCESS


async def test_a_threshold_of_its_own_lets_a_group_read_on_until_it_is_removed(
    reader: Reader,
) -> None:
    await reader.caller.heartbeat(topics={"T": "*"})
    update, remove = codes.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, codes.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
    assert (await reader.caller.ask(update, None, b"cg=100000\nother=soon\n")).code == 0
    assert (await reader.info())["configTable"] == {"cg": 100_000}
    assert len(records(await reader.pull(0, max_messages=2))) == 2
    assert len(records(await reader.pull(2, max_messages=2))) == 2
    assert (await reader.caller.ask(remove, None, b"cg")).code == codes.SUCCESS
    assert (await reader.info())["configTable"] == {}
    assert (await reader.pull(0)).code == codes.SYSTEM_BUSY


async def test_every_group_waits_once_all_together_have_read_too_much(reader: Reader) -> None:
    await reader.caller.ask(
        codes.UPDATE_BROKER_CONFIG, None, b"globalColdReadThreshold=500\ncgColdReadThreshold=100000"
    )
    for group in ("one", "two"):
        await reader.caller.heartbeat(group, topics={"T": "*"}, group=group)
        assert (await reader.pull(0, max_messages=1, group=group)).code == codes.SUCCESS
    assert (await reader.pull(1, group="one")).code == codes.SYSTEM_BUSY


async def test_only_what_is_not_in_memory_counts_where_the_broker_checks(reader: Reader) -> None:
    await reader.caller.ask(codes.UPDATE_BROKER_CONFIG, None, b"coldDataScanEnable=true")
    await reader.pull(0, max_messages=2)  # these were written a moment ago
    assert (await reader.info())["runtimeTable"] == {}


async def test_new_messages_and_the_tools_are_never_slowed_down(
    run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, caller = await run(config(**ON | {"cg_cold_read_threshold": 0}))
    reader = Reader(broker, caller, clock)
    for _ in range(2):
        await caller.send("T", BODY)
        assert (await reader.pull(0)).code == codes.SUCCESS  # all of the log is hot
    assert (await reader.info())["runtimeTable"] == {}
    monkeypatch.setattr(broker.store, "memory_part", lambda percent: 0)
    for _ in range(2):
        assert (await reader.pull(0, group="TOOLS_CONSUMER")).code == codes.SUCCESS
    assert (await reader.info())["runtimeTable"] == {}


async def test_how_the_log_is_read_ahead_can_be_set_and_outlives_a_restart(
    run: Run, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, caller = await run(config())
    await caller.send("T")
    await caller.pull("T")
    said: list[bool] = []
    monkeypatch.setattr(
        "aerobee.store.files.disk.current.read_ahead", lambda view, *, wanted: said.append(wanted)
    )
    for mode, wanted in (("1", False), ("0", True)):
        answer = await caller.ask(codes.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": mode})
        assert answer.code == codes.SUCCESS
        assert answer.remark == f"set commitlog readahead mode success, mode: {mode}"
        assert set(said) == {wanted}
        assert broker.config.data_read_ahead_enable is wanted
        said.clear()
    for mode, code in (("2", codes.INVALID_PARAMETER), ("x", codes.SYSTEM_ERROR)):
        answer = await caller.ask(codes.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": mode})
        assert answer.code == code


async def test_questions_about_rocksdb_are_answered_as_by_a_broker_with_files(
    run: Run, config: Config
) -> None:
    _, caller = await run(config())
    answer = await caller.ask(codes.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"checkStoreTime": "0"})
    assert (answer.code, json.loads(answer.body or b"")) == (codes.SUCCESS, {"checkStatus": 2})
    answer = await caller.ask(codes.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "topics;"})
    assert (answer.code, answer.remark) == (codes.SUCCESS, "export done.")
