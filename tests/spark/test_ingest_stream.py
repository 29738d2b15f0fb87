"""`aerobee ingest` as a stream, with typed columns: run for real, ended and gone on with."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import Message, Producer
from aerobee.client.blocking import Admin
from aerobee.harness.child import Child

from ..waiting import PROCESS, wait_until
from .programs import SPARK_SECONDS, has_ended
from .tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

TOPIC = "payments"
FIT = {"id": 1, "price": 2.5, "shop": "north", "timestamp": "a field of any name"}


def assert_no_lag(name_server: str) -> None:
    """The query has ended, and its group has all messages behind it."""
    with Admin(name_server) as admin:
        queues = admin.consume_stats("aerobee-spark", TOPIC).offset_table.values()
        assert [one.broker_offset - one.consumer_offset for one in queues] == [0] * len(queues)


def send(name_server: str, *bodies: bytes) -> None:
    async def work() -> None:
        async with Producer(name_server, group="shop") as producer:
            for body in bodies:
                await producer.send(Message(TOPIC, body), timeout=PROCESS)

    asyncio.run(work())


def test_a_stream_goes_on_where_a_signal_ended_it_and_keeps_what_does_not_fit(
    name_server: str, tmp_path: Path
) -> None:
    target, side = tmp_path / "payments", tmp_path / "payments.malformed"
    schema = tmp_path / "schema.ddl"
    schema.write_text("id bigint NOT NULL, price double, shop string, timestamp string")
    words = [TOPIC, "--to", str(target), "-n", name_server, "--master", "local[2]"]
    words += ["--parse", "json", "--schema", str(schema), "--partition-by", "shop,date"]
    argv = [sys.executable, "-m", "aerobee.scripts.cli", "ingest", *words]

    wrong = {
        b'{"id": 2, "price": "dear"}': "price is no double",
        b'{"price": 1.0}': "id is missing",
        b"{broken": "the body is no JSON",
        b"[1, 2]": "the body is no JSON object",
        b"{\xff\xfe}": "the body is no UTF-8",
    }
    send(name_server, json.dumps(FIT).encode(), *wrong)
    with Child([*argv, "--continuous"], tmp_path / "stderr", cwd=tmp_path) as stream:
        wait_until(
            lambda: has_ended(stream) or (rows_of(target) and len(rows_of(side)) == len(wrong)),
            stream.tail,
            seconds=SPARK_SECONDS,
        )
        stream.process.send_signal(signal.SIGTERM)
        assert stream.wait(SPARK_SECONDS) == 0, stream.tail()
        said = f"wrote 1 row of {TOPIC} as parquet to {target}, and 5 malformed ones to {side}, in "
        assert stream.lines[-1].startswith(said)
    assert_no_lag(name_server)

    send(name_server, json.dumps(FIT | {"id": 7, "price": None, "shop": "south"}).encode())
    done = subprocess.run(
        [*argv, "--available-now"], capture_output=True, text=True, timeout=SPARK_SECONDS
    )
    assert done.returncode == 0, done.stderr
    said = f"wrote 1 row of {TOPIC} as parquet to {target}, and 0 malformed ones to {side}, in "
    assert done.stdout.startswith(said)
    assert_no_lag(name_server)

    typed = sorted(rows_of(target), key=lambda row: row["id"])
    chosen = [(row["id"], row["price"], row["shop"], row["timestamp"]) for row in typed]
    assert chosen == [
        (1, 2.5, "north", "a field of any name"),
        (7, None, "south", "a field of any name"),
    ]
    assert {row["message_topic"] for row in typed} == {TOPIC}
    folders = {(path.parent.name, path.name) for path in target.glob("shop=*/date=*")}
    assert folders == {(f"shop={row['shop']}", f"date={row['date']}") for row in typed}
    assert {bytes(row["value"]): row["reason"] for row in rows_of(side)} == wrong
