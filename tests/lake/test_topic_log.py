"""A broker's messages as rows: pulled, and read from its files, they are the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.blocking import Admin, Message, Producer
from aerobee.client.cluster.route import MessageQueue
from aerobee.client.errors import NoRouteError
from aerobee.client.mirror.side import Side
from aerobee.lake.errors import LakeError
from aerobee.lake.rows.ranges import DataLossError, QueueRange
from aerobee.lake.topic_log import Bounds, TopicLog
from aerobee.protocol import codes
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.testing.cluster import LocalCluster

from ..spark.stored import raw

BIG = bytes(range(256)) * (4 << 12)  # 4 MiB, the most that a broker takes
ODD = b"\x00nul \xff\xfe no UTF-8 \xc3"
ROOM = {"mappedFileSizeCommitLog": 16 << 20}  # of a message of 4 MiB

Row = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[LocalCluster]:
    with LocalCluster(folder=folder, **ROOM) as one:
        yield one


@pytest.fixture
def pulled(cluster: LocalCluster) -> Iterator[TopicLog]:
    with opened(cluster) as source:
        yield source


@pytest.fixture
def stored(cluster: LocalCluster, folder: Path) -> Iterator[TopicLog]:
    with opened(cluster, stores={"broker-a": folder / "broker-a"}) as source:
        yield source


@contextmanager
def opened(cluster: LocalCluster, **options: Any) -> Iterator[TopicLog]:
    source = TopicLog(cluster.name_server, **options)
    try:
        yield source
    finally:
        source.close()


def queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, "broker-a", 0)


def create(cluster: LocalCluster, topic: str, **attributes: str) -> None:
    """A topic with one queue."""
    named = {name.replace("_", "."): text for name, text in attributes.items()}
    with Admin(cluster.name_server) as admin:
        admin.create_topic(topic, 1, attributes=named)


async def send_batch(cluster: LocalCluster, topic: str, *messages: tuple[bytes, bytes]) -> None:
    """A batch of bodies and raw properties, as no client of ours would send them."""
    async with Side(cluster.name_server) as side:
        header = SendMessage("g", topic, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, batch=True)
        body = encode_batch(Entry(7, body, properties) for body, properties in messages)
        await side.send(codes.SEND_BATCH_MESSAGE, header, queue(topic), body)


def rows(source: TopicLog, topic: str, start: int = 0) -> list[Row]:
    bounds, failures = source.bounds(topic)
    assert not failures
    return [
        row | {"properties": dict(row["properties"])}
        for each, (_, end) in bounds.items()
        for batch in source.rows(QueueRange(topic, each.broker_name, each.queue_id, start, end))
        for row in batch.to_pylist()
    ]


def both(pulled: TopicLog, stored: TopicLog, topic: str) -> list[Row]:
    """The rows, after they are the same in both ways."""
    found = rows(pulled, topic)
    assert rows(stored, topic) == found
    return found


def test_all_columns_are_the_same_pulled_and_stored(
    cluster: LocalCluster, pulled: TopicLog, stored: TopicLog
) -> None:
    create(cluster, "plain")
    with Producer(cluster.name_server) as producer:
        for number in range(50):
            producer.send(
                Message(
                    "plain",
                    f"body {number}".encode(),
                    tags="paid",
                    keys=[f"k{number}", "all"],
                    properties={"naïve": "日本語 🐝", "n": str(number)},
                    flag=number,
                )
            )
    found = both(pulled, stored, "plain")
    assert [row["offset"] for row in found] == list(range(50))
    last = found[-1]
    assert (last["key"], last["keys"], last["tags"]) == ("k49 all", ["k49", "all"], "paid")
    assert (last["topic"], last["brokerName"], last["queueId"]) == ("plain", "broker-a", 0)
    assert (last["value"], last["flag"]) == (b"body 49", 49)
    assert last["properties"]["naïve"] == "日本語 🐝"
    assert last["properties"]["UNIQ_KEY"] == last["msgId"]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_are_unpacked(
    cluster: LocalCluster, pulled: TopicLog, stored: TopicLog, kind: str
) -> None:
    topic, body = f"packed-{kind}", b"over and over " * 5_000
    create(cluster, topic)
    with Producer(cluster.name_server, compression=kind) as producer:
        producer.send(Message(topic, body))
    [row] = both(pulled, stored, topic)
    assert row["value"] == body


def test_a_body_of_4_mib_is_a_row(
    cluster: LocalCluster, pulled: TopicLog, stored: TopicLog
) -> None:
    create(cluster, "big")
    assert len(BIG) == 4 << 20
    with Producer(cluster.name_server, compress_bytes_min=len(BIG) + 1) as producer:
        for body in (b"before", BIG, b"behind"):
            producer.send(Message("big", body))
    assert [row["value"] for row in both(pulled, stored, "big")] == [b"before", BIG, b"behind"]


def test_an_empty_queue_has_no_rows(cluster: LocalCluster, pulled: TopicLog) -> None:
    create(cluster, "empty")
    assert pulled.bounds("empty") == ({queue("empty"): Bounds(0, 0)}, ())
    assert rows(pulled, "empty") == []


@pytest.mark.parametrize("kind", ["SimpleCQ", "BatchCQ"])
async def test_each_message_of_a_batch_is_a_row(
    cluster: LocalCluster, pulled: TopicLog, stored: TopicLog, kind: str
) -> None:
    """A batch queue keeps them in one record."""
    topic = f"batches-{kind}"
    create(cluster, topic, queue_type=kind)
    for first in (0, 3, 6):
        messages = [(f"{first + number}".encode(), raw({"n": str(number)})) for number in range(3)]
        await send_batch(cluster, topic, *messages)
    found = both(pulled, stored, topic)
    assert [row["value"] for row in found] == [str(number).encode() for number in range(9)]
    assert [row["offset"] for row in found] == list(range(9))
    assert [row["properties"]["n"] for row in found] == ["0", "1", "2"] * 3
    # A range may begin and end within a batch.
    assert [row["offset"] for row in rows(stored, topic, 4)] == [4, 5, 6, 7, 8]
    assert rows(pulled, topic, 4) == rows(stored, topic, 4)


async def test_nul_and_invalid_utf_8_in_bodies_and_properties_stay_readable(
    cluster: LocalCluster, pulled: TopicLog, stored: TopicLog
) -> None:
    """Columns of text hold UTF-8 only: what is none is replaced, as Java's clients do."""
    create(cluster, "odd")
    properties = b"KEYS\x01k\xff1\x02TAGS\x01t\x00\x02odd\x01" + ODD + b"\x02\xfename\x01x\x02"
    await send_batch(cluster, "odd", (ODD, properties), (b"", b""))
    odd, plain = both(pulled, stored, "odd")
    assert (odd["value"], plain["value"]) == (ODD, b"")
    assert (odd["key"], odd["tags"]) == ("k\ufffd1", "t\x00")
    assert odd["properties"]["odd"] == ODD.decode(errors="replace")
    assert odd["properties"]["\ufffdname"] == "x"


def test_bounds_of_an_unknown_topic_are_an_error(pulled: TopicLog) -> None:
    with pytest.raises(NoRouteError, match="no name server knows topic unknown"):
        pulled.bounds("unknown")


def test_the_topics_are_those_of_applications(cluster: LocalCluster, pulled: TopicLog) -> None:
    for topic in ("%RETRY%g", "%DLQ%g", "shop%orders"):
        create(cluster, topic)
    with Admin(cluster.name_server) as admin:
        everything = set(admin.topics())
    found = pulled.topics()
    assert found == sorted(found)
    assert "shop%orders" in found
    left_out = everything - set(found)
    assert left_out >= {"%RETRY%g", "%DLQ%g", "broker-a", "DefaultCluster", "TBW102"}
    assert "DefaultCluster_REPLY_TOPIC" in left_out


def test_offsets_by_time_are_those_of_the_broker(cluster: LocalCluster, pulled: TopicLog) -> None:
    create(cluster, "timed")
    with Producer(cluster.name_server) as producer:
        producer.send(Message("timed", b"early"))
        cluster.advance(hours=1)
        middle = cluster.clock() - 60_000
        producer.send(Message("timed", b"late"))
    assert pulled.offsets_at([queue("timed")], middle) == {queue("timed"): 1}
    assert pulled.offsets_at([queue("timed")], 0) == {queue("timed"): 0}


def test_a_folder_that_is_not_the_brokers_is_named(
    cluster: LocalCluster, folder: Path, tmp_path: Path
) -> None:
    create(cluster, "elsewhere")
    with Producer(cluster.name_server) as producer:
        producer.send(Message("elsewhere", b"x"))
    with (
        opened(cluster, stores={"broker-a": tmp_path / "none"}) as none,
        pytest.raises(LakeError, match=r"broker broker-a in stores: .* is no store: it has"),
    ):
        rows(none, "elsewhere")
    with LocalCluster(folder=tmp_path, **ROOM) as wrong:
        with (
            opened(cluster, stores={"broker-a": tmp_path / "broker-a"}) as other,
            pytest.raises(LakeError, match=r"broker-a in stores: .*has no queue 0 of topic else"),
        ):
            rows(other, "elsewhere")
        create(wrong, "elsewhere")
        with Producer(cluster.name_server) as here, Producer(wrong.name_server) as there:
            here.send(Message("elsewhere", b"x"))
            there.send(Message("elsewhere", b"x"))
        with (
            opened(cluster, stores={"broker-a": tmp_path / "broker-a"}) as other,
            pytest.raises(LakeError, match=r"end at offset 1 of queue 0 .* correct stores"),
        ):
            rows(other, "elsewhere")


def test_offsets_that_are_gone_are_data_loss(pulled: TopicLog, cluster: LocalCluster) -> None:
    create(cluster, "gone")
    with pytest.raises(DataLossError, match="nothing is at offset 5"):
        list(pulled.rows(QueueRange("gone", "broker-a", 0, 5, 6)))
