"""Light queues (enableLmq, enableMultiDispatch) as clients meet them, with both engines."""

import asyncio
import json
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.headers.offsets import QueryConsumerOffset, UpdateConsumerOffset

from ..conftest import Caller, Config, Run, parked, records

ON_BOTH_ENGINES = True
A, B = "%LMQ%a", "%LMQ%b"
GROUP = "%LMQ%reader"


@pytest.fixture
def light(config: Config) -> Config:
    return lambda **more: config(enable_lmq=True, enable_multi_dispatch=True, **more)


async def bodies(caller: Caller, topic: str) -> list[bytes]:
    return [bytes(one.body) for one in records(await caller.pull(topic, group=GROUP))]


async def test_a_pull_that_waits_at_a_light_queue_gets_the_message_that_names_it(
    run: Run, light: Config
) -> None:
    broker, caller = await run(light())
    await caller.send("orders", b"1")
    await caller.send("orders", b"2", INNER_MULTI_DISPATCH=f"{A},{B}")
    waiting = asyncio.create_task(caller.pull(A, 1, suspend_ms=20_000, group=GROUP))
    await parked(broker, 1)
    sent = await caller.send("orders", b"3", INNER_MULTI_DISPATCH=A)
    assert (sent.code, sent.fields()["queueOffset"]) == (codes.SUCCESS, "2")
    (record,) = records(await waiting)
    assert (record.body, record.topic, record.queue_offset) == (b"3", "orders", 2)
    assert await bodies(caller, A) == [b"2", b"3"]
    assert await bodies(caller, B) == [b"2"]
    assert await bodies(caller, "orders") == [b"1", b"2", b"3"]


async def test_a_light_queue_is_a_topic_that_no_table_has(run: Run, light: Config) -> None:
    _, caller = await run(light())
    assert await bodies(caller, A) == []
    sent = await caller.send(A, b"straight")
    assert (sent.code, sent.fields()["queueId"]) == (codes.SUCCESS, "0")
    await caller.send("orders", b"named", INNER_MULTI_DISPATCH=A)
    assert await bodies(caller, A) == [b"straight", b"named"]
    answer = await caller.ask(codes.GET_ALL_TOPIC_CONFIG)
    topics = TopicConfigAndMappingSerializeWrapper.decode(answer.body or b"").topic_config_table
    assert "orders" in topics
    assert A not in topics
    assert (await caller.ask(codes.CLEAN_UNUSED_TOPIC)).code == codes.SUCCESS
    assert await bodies(caller, A) == [b"straight", b"named"]


async def test_offsets_of_groups_of_light_queues_are_in_rocketmq_s_file(
    run: Run, light: Config, tmp_path: Path
) -> None:
    broker, caller = await run(light())
    await caller.send("orders", INNER_MULTI_DISPATCH=A)
    await caller.pull("orders", group="cg")  # which makes the group
    for topic, group, offset in ((A, GROUP, 1), ("orders", "cg", 1)):
        header = UpdateConsumerOffset(group, topic, 0, offset)
        assert (await caller.ask(codes.UPDATE_CONSUMER_OFFSET, header)).code == codes.SUCCESS
    await broker.stop()
    path = Path(broker.config.store_path_root_dir) / "config" / "lmqConsumerOffset.json"
    written = json.loads(path.read_text())
    assert written["lmqOffsetTable"] == {f"{A}@{GROUP}": 1}
    assert written["offsetTable"] == {"orders@cg": {"0": 1}}
    _, again = await run(light())
    for topic, group in ((A, GROUP), ("orders", "cg")):
        answer = await again.ask(codes.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(group, topic, 0))
        assert answer.fields()["offset"] == "1"


async def test_offsets_from_before_the_switches_stay(
    run: Run, light: Config, config: Config
) -> None:
    broker, caller = await run(config())
    await caller.send("orders")
    await caller.pull("orders", group="cg")  # which makes the group
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "orders", 0, 1))
    await broker.stop()
    _, again = await run(light())
    answer = await again.ask(codes.QUERY_CONSUMER_OFFSET, QueryConsumerOffset("cg", "orders", 0))
    assert answer.fields()["offset"] == "1"


async def test_a_name_that_is_no_light_queue_is_refused(run: Run, light: Config) -> None:
    _, caller = await run(light())
    sent = await caller.send("orders", INNER_MULTI_DISPATCH=f"{A},elsewhere")
    assert sent.code == codes.MESSAGE_ILLEGAL
    assert "INNER_MULTI_DISPATCH names 'elsewhere'" in (sent.remark or "")


async def test_without_the_switches_a_light_queue_gets_nothing(run: Run, config: Config) -> None:
    _, caller = await run(config())
    await caller.send("orders", INNER_MULTI_DISPATCH=A)
    answer = await caller.pull(A, group="cg")
    assert answer.code == codes.TOPIC_NOT_EXIST
