"""PySpark reads a topic of a running cluster: rows, options, errors, and `aerobee ingest`."""

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import Message, Producer
from aerobee.client.admin.admin import Admin
from aerobee.lake.rows.columns import row_columns
from pyarrow import parquet

from .programs import SPARK_SECONDS, Driver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

TOPIC = "orders"
QUEUES = 4
PER_QUEUE = 100


@dataclass(frozen=True)
class Sent:
    """The messages of the topic by queue and offset, and when sending began and ended, in ms."""

    messages: dict[tuple[int, int], Message]
    begin_ms: int
    end_ms: int


@pytest.fixture(scope="module")
def sent(name_server: str) -> Sent:
    return asyncio.run(send(name_server))


async def send(name_server: str) -> Sent:
    begin = int(time.time() * 1000)
    found = {}
    async with Admin(name_server) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    async with Producer(name_server, group="shop") as producer:
        for queue in await producer.queues(TOPIC):
            for number in range(PER_QUEUE):
                message = Message(
                    TOPIC,
                    # Bodies of 4 KiB and more travel compressed.
                    bytes([number]) * (6000 if number == 7 else 1 + number),
                    tags="größe" if number % 3 else None,
                    keys=[f"k{number}", "second"] if number % 2 else (),
                    properties={"colour": f"blue {number}"} if number % 5 == 0 else None,
                    flag=number,
                )
                receipt = await producer.send(message, queue=queue)
                found[queue.queue_id, receipt.queue_offset] = message
    return Sent(found, begin, int(time.time() * 1000))


@pytest.fixture(scope="module")
def found(name_server: str, sent: Sent, driver: Driver) -> dict[str, Any]:
    """What the program printed."""
    return driver.found_by(Path(__file__).with_name("spark_program.py"), name_server, TOPIC)


@pytest.mark.smoke
def test_spark_has_the_columns_with_their_types(found: dict[str, Any]) -> None:
    full = row_columns(headers=True, full=True)
    assert found["types"] == [[column.name, column.ddl] for column in full]
    assert found["base"] == [column.name for column in row_columns()]


@pytest.mark.smoke
def test_every_message_is_a_row_with_all_it_was_sent_with(
    found: dict[str, Any], sent: Sent
) -> None:
    rows = {(row["queueId"], row["offset"]): row for row in found["rows"]}
    assert len(found["rows"]) == QUEUES * PER_QUEUE
    assert rows.keys() == sent.messages.keys()
    for place, message in sent.messages.items():
        row = rows[place]
        keys = list(message.keys)
        assert bytes.fromhex(row["value"]) == message.body
        assert (row["topic"], row["partition"], row["brokerName"]) == (TOPIC, place[0], "broker-a")
        assert row["tags"] == message.tags
        assert row["key"] == (" ".join(keys) or None)
        assert row["keys"] == (keys or None)
        assert row["flag"] == message.flag
        colour = (message.properties or {}).get("colour")
        assert row["properties"].get("colour") == colour
        own = [{"key": "colour", "value": colour.encode().hex()}] if colour else None
        assert row["headers"] == own
        assert row["msgId"] == row["properties"]["UNIQ_KEY"]
        assert row["timestampType"] == 1
        assert row["reconsumeTimes"] == 0
        assert row["bornHost"].startswith("127.0.0.1:")
        assert sent.begin_ms <= milliseconds(row["bornTimestamp"]) <= sent.end_ms + 1
        assert sent.begin_ms <= milliseconds(row["timestamp"]) <= sent.end_ms + 1


def milliseconds(text: str) -> float:
    """Of an ISO time in UTC; a whole second is written without a fraction."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000


def test_a_schema_chooses_columns(found: dict[str, Any]) -> None:
    assert found["subset"] == [["offset", "value"], QUEUES * PER_QUEUE]


def test_queues_and_long_ranges_become_tasks(found: dict[str, Any]) -> None:
    assert found["partitions"] == [QUEUES, 8]
    assert found["chunks"] == [QUEUES * PER_QUEUE] * 2


@pytest.mark.smoke
def test_offsets_bound_a_read(found: dict[str, Any]) -> None:
    assert found["halves"] == QUEUES * (PER_QUEUE - 10)
    assert found["empty"] == 0


def test_a_topic_named_twice_is_read_once(found: dict[str, Any]) -> None:
    assert found["twice"] == QUEUES * PER_QUEUE


def test_a_message_has_one_time_in_all_zones(found: dict[str, Any]) -> None:
    assert found["zones"] is True


def test_filters_that_are_pushed_down_leave_the_same_rows_and_fewer_tasks(
    found: dict[str, Any],
) -> None:
    unpushed, pushed = found["filtered"]["false"], found["filtered"]["true"]
    assert {name: rows for name, (rows, _) in pushed.items()} == {
        name: rows for name, (rows, _) in unpushed.items()
    }
    assert [tasks for _, tasks in unpushed.values()] == [QUEUES] * len(unpushed)
    assert unpushed["queue"][0] == [[2, offset] for offset in range(PER_QUEUE)]
    assert unpushed["offsets"][0] == [
        [queue, offset] for queue in range(QUEUES) for offset in (5, 6)
    ]
    assert unpushed["tags"][0]
    assert unpushed["time"][0]
    assert unpushed["nothing"][0] == []
    if find_spec("pyspark.sql.worker.data_source_pushdown_filters") is None:
        pytest.skip("PySpark pushes filters down from 4.1 on")
    assert pushed["queue"][1] == pushed["key"][1] == pushed["nothing"][1] == 1
    assert pushed["tags"][1] == 2


@pytest.mark.smoke
def test_what_is_wrong_is_in_sparks_error(found: dict[str, Any]) -> None:
    unknown_option, unknown_topic, no_server = found["errors"]
    assert "did you mean includeHeaders?" in unknown_option
    assert "no name server knows topic nosuchtopic" in unknown_topic
    assert "no name server answered" in no_server
    for text in found["errors"]:
        assert "Traceback" not in text
        # Before it Spark only says what it was about.
        assert text.splitlines()[0].startswith("[PYTHON_DATA_SOURCE_ERROR] Failed to ")


def ingest(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "aerobee.scripts.cli", "ingest", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=SPARK_SECONDS)


def test_ingest_writes_all_messages_to_parquet(
    name_server: str, sent: Sent, tmp_path: Path
) -> None:
    target = tmp_path / "orders"
    target.mkdir()
    done = ingest(TOPIC, "--to", str(target), "-n", name_server, "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    assert f"wrote {QUEUES * PER_QUEUE} rows of {TOPIC} as parquet to {target}" in done.stdout
    rows = parquet.read_table(target).to_pylist()
    values = {(row["partition"], row["offset"]): row["value"] for row in rows}
    assert len(rows) == QUEUES * PER_QUEUE
    assert values == {place: message.body for place, message in sent.messages.items()}
    again = ingest(TOPIC, "--to", str(target), "-n", name_server)
    assert again.returncode == 1
    assert "is there already and not empty; give another folder, or --overwrite" in again.stderr


def test_ingest_of_an_unknown_topic_is_one_sentence(name_server: str, tmp_path: Path) -> None:
    done = ingest("nosuchtopic", "--to", str(tmp_path / "x"), "-n", name_server)
    assert done.returncode == 1
    assert done.stderr.startswith("aerobee ingest: no name server knows topic nosuchtopic")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
