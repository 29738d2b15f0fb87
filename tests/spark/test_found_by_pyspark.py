"""The package that PySpark imports, and the source as PySpark handles it."""

import pickle
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pyspark")

from aerobee.lake.rows.columns import BASE, BY_NAME
from aerobee.spark.batch import RocketmqReader
from aerobee.spark.options import read_options
from aerobee.spark.schema import chosen_columns
from aerobee.spark.source import RocketmqSource
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

ROOT = Path(__file__).parents[2]
PACKAGE = "pyspark_rocketmq"  # PySpark imports what begins with pyspark_


def loaded() -> ModuleType:
    spec = spec_from_file_location(PACKAGE, ROOT / "spark" / PACKAGE / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_is_installed_beside_ours_and_gives_the_source() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setuptools["package-dir"][PACKAGE] == f"spark/{PACKAGE}"
    assert PACKAGE in setuptools["packages"]
    assert loaded().DefaultSource is RocketmqSource
    assert RocketmqSource.name() == "rocketmq"


def test_without_what_the_source_needs_there_is_none_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aerobee.spark.source", None)
    assert not hasattr(loaded(), "DefaultSource")


def test_the_reader_survives_pickling_with_options_and_columns() -> None:
    source = RocketmqSource({"subscribe": "orders", "nameServer": "127.0.0.1:1"})
    schema = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])
    reader = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(source)).reader(schema)))
    assert isinstance(reader, RocketmqReader)
    assert reader.options == read_options(source.given)
    assert reader.columns == (BY_NAME["value"], BY_NAME["offset"])


@pytest.mark.parametrize("partition", [None, InputPartition(None)], ids=["4.0", "later"])
def test_where_there_is_no_range_there_are_no_rows(partition: InputPartition | None) -> None:
    reader = RocketmqReader(read_options({"subscribe": "orders"}), BASE)
    assert list(reader.read(partition)) == []


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (("body", "binary", True), "a column 'body'; the source has key, value"),
        (("value", "string", True), "column value as string; it is binary, cast it in the query"),
        (("offset", "bigint", False), "says NOT NULL for column offset; leave it out"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(field: tuple[str, str, bool], words: str) -> None:
    good = [(column.name, column.ddl, True) for column in BASE]
    assert chosen_columns(good) == BASE
    with pytest.raises(ValueError, match=words):
        chosen_columns([*good, field])


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="the schema has no column"):
        chosen_columns([])
