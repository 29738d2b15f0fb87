"""What a broker answers about messages that are gone: ours and the real one on the same files."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.harness.clusters import TEST_BROKER_FLAGS, JavaCluster
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.headers.offsets import QueryConsumerOffset, QueueAddress, SearchOffset
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.headers.topics import ViewMessage
from aerobee.protocol.message.record import decode_all

TOPIC, GONE_TOPIC = "Partly", "Wholly"
FILE_BYTES = 64 << 10
GONE_FILES = 2
SIZES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
BORN_MS = 1_700_000_000_000


def config(store: Path) -> BrokerConfig:
    return BrokerConfig(
        broker_name="interop-broker",
        listen_port=0,
        http_port=-1,
        store_path_root_dir=str(store),
        mapped_file_size_commit_log=FILE_BYTES,
        mapped_file_size_consume_queue=200,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_interval_consume_queue=10,
        delete_consume_queue_files_interval=0,
    )


async def send(peers: Peers, address: str, topic: str, queue: int) -> None:
    header = SendMessage("maker", topic, "TBW102", 4, queue, 0, BORN_MS, 0, "KEYS\x01k\x02", 0)
    answer = await peers.request(address, codes.SEND_MESSAGE_V2, header, bytes(2_000), 20)
    assert answer.code == codes.SUCCESS, answer.remark


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A store whose first files have gone: all of one topic, a part of the other."""
    broker = Broker(config(tmp_path / "store"))
    await broker.start()
    peers = Peers()
    try:
        for topic, count in ((GONE_TOPIC, 20), (TOPIC, 90)):
            for number in range(count):
                await send(peers, f"127.0.0.1:{broker.port}", topic, number % 2)
        await broker.syncer.sync()
        for path in sorted((broker.root / "commitlog").iterdir())[:GONE_FILES]:
            os.utime(path, (0, 0))
        broker.cleaner.delete_expired()
        await broker.cleaner.finished()
        assert broker.store.log_start == GONE_FILES * FILE_BYTES
        assert 0 < broker.store.min_offset(TOPIC, 0) < broker.store.max_offset(TOPIC, 0) == 45
        assert broker.store.min_offset(GONE_TOPIC, 0) == broker.store.max_offset(GONE_TOPIC, 0)
    finally:
        await peers.close()
        await broker.stop()
    return tmp_path / "store"


@pytest.fixture
def real(java_is_here: None, store: Path, tmp_path: Path) -> Iterator[JavaCluster]:
    """The real broker on a copy of it."""
    shutil.copytree(store, tmp_path / "copy")
    settings = SIZES | {"storePathRootDir": str(tmp_path / "copy")}
    cluster = JavaCluster(tmp_path / "java", settings, flags=TEST_BROKER_FLAGS)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
async def ours(store: Path) -> AsyncIterator[Broker]:
    broker = Broker(config(store))
    await broker.start()
    yield broker
    await broker.stop()


def told(answer: Command, *names: str) -> list[object]:
    """The code, these fields, and the queue offsets of the messages of an answer."""
    fields = answer.fields()
    offsets = [record.queue_offset for record in decode_all(answer.body or b"")]
    return [answer.code, *(fields.get(name) for name in names), offsets]


async def ask(address: str) -> dict[str, list[object]]:
    """What a broker says about both topics."""
    peers = Peers()
    found: dict[str, list[object]] = {}
    places = ("nextBeginOffset", "minOffset", "maxOffset")
    try:
        for topic in (TOPIC, GONE_TOPIC):
            for offset in (*range(50), 99):
                pull = PullMessage("reader", topic, 0, offset, 32, SUBSCRIPTION, 0, 0, 0, "*")
                answer = await peers.request(address, codes.PULL_MESSAGE, pull, b"", 20)
                found[f"pull {topic} {offset}"] = told(answer, *places)
            queue = QueueAddress(topic, 0)
            for code in (codes.GET_MIN_OFFSET, codes.GET_MAX_OFFSET):
                answer = await peers.request(address, code, queue, b"", 20)
                found[f"{code} {topic}"] = told(answer, "offset")
            answer = await peers.request(address, codes.GET_EARLIEST_MSG_STORETIME, queue, b"", 20)
            found[f"earliest {topic}"] = told(answer, "timestamp")
            for moment in (0, 1 << 60):
                for boundary in ("LOWER", "UPPER"):
                    search = SearchOffset(topic, 0, moment, boundary)
                    answer = await peers.request(
                        address, codes.SEARCH_OFFSET_BY_TIMESTAMP, search, b"", 20
                    )
                    found[f"{moment} {boundary} {topic}"] = told(answer, "offset")
            new = QueryConsumerOffset("nobody", topic, 0)
            answer = await peers.request(address, codes.QUERY_CONSUMER_OFFSET, new, b"", 20)
            found[f"a new group of {topic}"] = told(answer, "offset")
        # Not at 0, where the real one gives whatever message is the first that it has.
        answer = await peers.request(address, codes.VIEW_MESSAGE_BY_ID, ViewMessage(9), b"", 20)
        found["view"] = [answer.code]
    finally:
        await peers.close()
    return found


async def test_a_reader_of_gone_messages_is_told_the_same_by_both(
    ours: Broker, real: JavaCluster
) -> None:
    by_ours = await ask(f"127.0.0.1:{ours.port}")
    by_real = await ask(real.broker)
    assert len(by_ours) > 100
    for question, answer in by_real.items():
        assert by_ours[question] == answer, question
    assert by_real[f"pull {TOPIC} 0"][0] == codes.PULL_OFFSET_MOVED
