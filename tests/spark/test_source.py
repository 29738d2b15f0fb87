"""What a Python process of Spark loads: each imports the source, and most want little of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from aerobee.lake.errors import LakeError
from aerobee.spark.source import RocketmqSource

OURS = ("aerobee.store.columns.view", "aerobee.client.producer.producer")
HEAVY = ("asyncio", "numpy", "pandas", "pyarrow", *OURS)
LOADED = f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"


def loaded_after(program: str) -> list[str]:
    """Which of the heavy modules a process has that runs this program."""
    code = "import json, sys\nimport pyspark.sql.datasource\nbefore = set(sys.modules)\n"
    code += f"{program}\n{LOADED.replace('in sys.modules', 'in set(sys.modules) - before')}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_who_asks_for_the_schema_loads_neither_arrow_nor_a_client() -> None:
    program = "from aerobee.spark.source import RocketmqSource\n"
    program += "RocketmqSource({'subscribe': 'orders'}).schema()"
    assert loaded_after(program) == []


def test_a_lake_that_cant_be_read_is_told_with_the_schema(tmp_path: Path) -> None:
    """What the reader of a stream raises, PySpark shows with its own frames."""
    pytest.importorskip("pyiceberg")
    path = tmp_path / "no.yaml"
    with pytest.raises(LakeError, match=f"there is no file {path}; make it with aerobee lake add"):
        RocketmqSource({"subscribe": "orders", "lakeConfig": str(path)}).schema()


def test_who_plans_a_read_loads_a_client_and_no_arrow() -> None:
    program = "from aerobee.spark.source import RocketmqSource\n"
    program += "from pyspark.sql.types import BinaryType, StructField, StructType\n"
    program += "schema = StructType([StructField('value', BinaryType())])\n"
    program += "RocketmqSource({'subscribe': 'orders'}).reader(schema)"
    assert loaded_after(program) == ["asyncio"]


def test_a_task_decodes_without_pandas_and_without_the_files_of_a_store() -> None:
    program = """

from aerobee.protocol.message.record import Record, encode_record
from aerobee.spark import read
from aerobee.lake.rows.decode import decode
from aerobee.lake.rows.columns import row_columns

host = bytes(8)
record = Record(
    size=0, magic=0, body_crc=0, queue_id=3, flag=0, queue_offset=1, log_offset=0, sys_flag=0,
    born_ms=1, born_host=host, store_ms=2, store_host=host, reconsume_times=0, prepared_offset=0,
    body=b"body", topic="orders", raw_properties=b"TAGS\\x01a\\x02",
)
assert decode(encode_record(record), row_columns(), broker_name="a")["tags"].to_pylist() == ["a"]
"""
    loaded = loaded_after(program)
    assert "pyarrow" in loaded
    assert not {"pandas", *OURS} & set(loaded)
