"""A damaged table of config/: the broker starts from its copy, or says which files to correct."""

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.store.base.errors import DamagedStore

from ..clocks import Clock
from .conftest import Caller, Config, records

TOPICS = ("a", "b", "c")
MESSAGES = 5  # in each topic
DAMAGE: dict[str, Callable[[int], bytes]] = {
    "other bytes": lambda size: bytes(size * 167 + n * 59 & 0xFF for n in range(40)),
    "zeros": bytes,
    "empty": lambda size: b"",
}
# A slave's own copy of each, and how far delayed messages are.
TABLES = (
    codes.GET_ALL_TOPIC_CONFIG,
    codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    codes.GET_ALL_CONSUMER_OFFSET,
    codes.GET_ALL_DELAY_OFFSET,
    codes.GET_ALL_MESSAGE_REQUEST_MODE,
)
VERSION = re.compile(rb'"dataVersion":\{[^}]*\},?')
# The first start with a damaged one gives no locks until those of before have ended.
LOCKS = "queueLocks.json"


async def tables(caller: Caller) -> dict[int, bytes]:
    """The answers that show what the files have, without the versions: a save makes another one."""
    answers = {code: await caller.ask(code) for code in TABLES}
    assert {answer.code for answer in answers.values()} == {codes.SUCCESS}
    return {code: VERSION.sub(b"", answer.body or b"") for code, answer in answers.items()}


@pytest.fixture
async def stopped(config: Config, clock: Clock) -> tuple[Path, dict[int, bytes]]:
    """The store folder of a broker with topics, groups, messages and offsets that has stopped, and
    its tables."""
    broker = Broker(config(), now_ms=clock)
    await broker.start()
    caller = Caller(broker)
    for topic in TOPICS:
        for _ in range(MESSAGES):
            assert (await caller.send(topic)).code == codes.SUCCESS
        await caller.pull(topic)
        await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", topic, 0, 3))
    await caller.send("a", DELAY="1")
    clock.ms += 1_000
    await broker.catch_up()
    mode = b'{"topic":"a","consumerGroup":"cg","mode":"POP","popShareQueueNum":0}'
    assert (await caller.ask(codes.SET_MESSAGE_REQUEST_MODE, None, mode)).code == codes.SUCCESS
    before = await tables(caller)
    await caller.peers.close()
    await broker.stop()
    return broker.root, before


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "config").glob("*.json"))


def copied(folder: Path, to: Path, name: str) -> Path:
    """Copies a store folder; returns the path of the table in the copy."""
    shutil.copytree(folder, to)
    return to / "config" / name


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_table_whose_copy_is_good_starts_from_the_copy(
    stopped: tuple[Path, dict[int, bytes]],
    damage: str,
    clock: Clock,
    config: Config,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, before = stopped
    tried = names(folder)
    assert {"topics.json", "subscriptionGroup.json", "consumerOffset.json"} <= {*tried}
    assert {"delayOffset.json", "messageRequestMode.json"} <= {*tried}
    for name in tried:
        copy = tmp_path / damage / name
        path = copied(folder, copy, name)
        path.write_bytes(DAMAGE[damage](path.stat().st_size))
        caplog.clear()
        again = Broker(config(store_path_root_dir=str(copy)), now_ms=clock)
        await again.start()
        caller = Caller(again)
        assert await tables(caller) == before, name
        for topic in TOPICS:
            assert len(records(await caller.pull(topic))) >= MESSAGES, (name, topic)
        await caller.peers.close()
        await again.stop()
        told = [
            record.getMessage()
            for record in caplog.records
            if record.levelno >= logging.WARNING and str(path) in record.getMessage()
        ]
        assert len(told) == 1, name
        assert name == LOCKS or f"{path}.bak is taken instead" in told[0]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_table_without_a_good_copy_stops_the_start_and_is_named(
    stopped: tuple[Path, dict[int, bytes]],
    damage: str,
    clock: Clock,
    config: Config,
    tmp_path: Path,
) -> None:
    folder, _ = stopped
    for name in names(folder):
        if name == LOCKS:
            continue
        for has_copy in (True, False):
            copy = tmp_path / damage / name / str(has_copy)
            path = copied(folder, copy, name)
            for each in (path, path.with_name(f"{name}.bak")) if has_copy else (path,):
                each.write_bytes(DAMAGE[damage](path.stat().st_size))
            if not has_copy:
                path.with_name(f"{name}.bak").unlink()
            with pytest.raises(DamagedStore, match="correct or remove what is there") as caught:
                await Broker(config(store_path_root_dir=str(copy)), now_ms=clock).start()
            assert str(path) in str(caught.value)
            assert (f"{path}.bak" in str(caught.value)) is has_copy


async def test_a_table_that_is_missing_together_with_its_copy_is_a_first_start(
    stopped: tuple[Path, dict[int, bytes]], clock: Clock, config: Config
) -> None:
    folder, before = stopped
    (folder / "config" / "consumerOffset.json").unlink()
    (folder / "config" / "consumerOffset.json.bak").unlink()
    again = Broker(config(), now_ms=clock)
    await again.start()
    peers = Peers()
    address = f"127.0.0.1:{again.port}"
    answer = await peers.request(address, codes.GET_ALL_CONSUMER_OFFSET, None, b"", 20)
    await peers.close()
    await again.stop()
    assert b'"a@cg"' in before[codes.GET_ALL_CONSUMER_OFFSET]
    assert b'"a@cg"' not in (answer.body or b"")
