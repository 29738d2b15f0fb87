"""What `aerobee ingest` works out before Spark starts."""

import argparse
import json
from pathlib import Path
from typing import Self

import pytest

pytest.importorskip("pyspark")

from aerobee.client.base.start_from import StartFrom
from aerobee.client.blocking import MessageQueue
from aerobee.scripts.commands import ingest as command
from aerobee.scripts.output.command_error import CommandError
from aerobee.spark import ingest, session
from aerobee.spark.bodies import read_schema_text
from aerobee.spark.ingest import Ingest, check_target, measure, source_options
from aerobee.spark.ingest_stream import check_checkpoint, lag_of
from aerobee.spark.session import SparkFailed

from .fakes import FakeReader


class Timed(FakeReader):
    """Opened as the client's reader is; a message is stored each second, the first at 0."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        return max(self.min_offset(queue), min(ms // 1000, self.max_offset(queue)))


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> Timed:
    reader = Timed({("a", "x", 0): range(10), ("a", "x", 1): range(5, 20), ("a", "y", 0): range(0)})
    monkeypatch.setattr(ingest, "Reader", lambda *_, **__: reader)
    return reader


def test_all_that_the_topic_holds_is_measured() -> None:
    span = measure(Ingest("a", "out"))
    assert span.starting == {"a": {"x:0": 0, "x:1": 5, "y:0": 0}}
    assert span.ending == {"a": {"x:0": 10, "x:1": 20, "y:0": 0}}
    assert span.messages == 25


def test_a_time_is_where_it_begins() -> None:
    span = measure(Ingest("a", "out", start=StartFrom.read(7_000)))
    assert span.starting == {"a": {"x:0": 7, "x:1": 7, "y:0": 0}}
    assert span.messages == 3 + 13
    assert measure(Ingest("a", "out", start=StartFrom.read(60_000))).messages == 0


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    job = Ingest("a", str(tmp_path))
    with pytest.raises(SparkFailed, match="there already and not empty; give another folder"):
        check_target(job)
    with pytest.raises(SparkFailed, match="there already"):
        check_target(Ingest("a", str(tmp_path / "mine")))
    check_target(Ingest("a", str(tmp_path), overwrite=True))
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_new_folder_an_empty_one_and_a_uri_will_do(tmp_path: Path) -> None:
    check_target(Ingest("a", str(tmp_path / "new")))
    (tmp_path / "empty").mkdir()
    check_target(Ingest("a", str(tmp_path / "empty")))
    check_target(Ingest("a", "hdfs://elsewhere/folder"))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkFailed, match="'orc' is unknown; give parquet, json, csv"):
        check_target(Ingest("a", str(tmp_path / "new"), format="orc"))


def test_delta_is_refused_where_nobody_can_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "find_spec", lambda name: None)
    with pytest.raises(SparkFailed, match="needs the package delta-spark, which is not installed"):
        check_target(Ingest("a", str(tmp_path / "new"), format="delta"))


def test_the_table_of_what_does_not_fit_is_left_alone_too(tmp_path: Path) -> None:
    (tmp_path / "new.malformed").mkdir()
    (tmp_path / "new.malformed" / "mine").write_text("precious")
    check_target(Ingest("a", str(tmp_path / "new")))
    with pytest.raises(SparkFailed, match=r"new\.malformed is there already and not empty"):
        check_target(Ingest("a", str(tmp_path / "new"), schema="id bigint"))


def test_a_stream_is_told_where_to_begin() -> None:
    job = Ingest("a", "out", name_server="here:1", start=StartFrom.read(7_000))
    assert source_options(job) == {
        "subscribe": "a",
        "startingTimestamp": "7000",
        "nameServer": "here:1",
    }
    assert source_options(Ingest("a", "out"))["startingOffsets"] == "earliest"


def test_a_stream_goes_on_with_a_table_only_where_its_checkpoint_is(tmp_path: Path) -> None:
    job = Ingest("a", f"{tmp_path}/table/")
    assert job.progress == f"{tmp_path}/table.checkpoint"
    check_checkpoint(job)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "rows").write_text("rows")
    with pytest.raises(SparkFailed, match="where to go on is unknown; give --checkpoint"):
        check_checkpoint(job)
    (tmp_path / "table.checkpoint").mkdir()
    check_checkpoint(job)
    with pytest.raises(SparkFailed, match="rows is no folder"):
        check_checkpoint(Ingest("a", str(tmp_path / "table" / "rows")))


def test_a_schema_file_that_says_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    with pytest.raises(SparkFailed, match="can't be read"):
        read_schema_text(str(file))
    file.write_text(" \n")
    with pytest.raises(SparkFailed, match="has 2 bytes; give 1 to"):
        read_schema_text(str(file))
    file.write_text(" id bigint\n")
    assert read_schema_text(str(file)) == "id bigint"
    assert read_schema_text(" id bigint, price double") == "id bigint, price double"
    assert read_schema_text('{"type":"struct"}') == '{"type":"struct"}'


def test_the_lag_is_what_lies_between_a_querys_offsets_and_the_ends() -> None:
    latest = {"a": {"x:0": 10, "x:1": 5}, "b": {"x:0": 3}}
    told = {"endOffset": {"a": {"x:0": 4, "x:1": 5}}, "latestOffset": latest}
    assert lag_of(told) == 6 + 3
    assert lag_of({name: json.dumps(each) for name, each in told.items()}) == 9
    assert lag_of({name: str(each) for name, each in told.items()}) == 9  # as PySpark 4.0 does
    assert lag_of({"endOffset": str(told["endOffset"]), "latestOffset": "None"}, latest) == 9
    assert lag_of({"endOffset": latest, "latestOffset": latest}) == 0
    assert lag_of({"endOffset": None, "latestOffset": latest}) is None
    assert lag_of({"endOffset": latest, "latestOffset": None}) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parse", "json"], "--parse and --schema belong together"),
        (["--schema", "file"], "--parse and --schema belong together"),
        (["--overwrite", "--continuous"], "--overwrite is for a table written once"),
        (["--checkpoint", "x"], "--checkpoint is for a stream"),
        (["--to", "out.json", "--format", "csv"], "ends like json, and --format is csv"),
    ],
)
def test_words_that_contradict_each_other_are_refused(words: list[str], said: str) -> None:
    parser = argparse.ArgumentParser()
    command.declare("ingest", parser)
    with pytest.raises(CommandError, match=said):
        command.run(parser.parse_args(["a", "--to", "out", *words]))


@pytest.mark.parametrize(
    ("target", "format"),
    [("out", "parquet"), ("out.json", "json"), ("s3://b/out.csv/", "csv"), ("out.d", "parquet")],
)
def test_the_format_follows_from_the_ending(
    target: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Ingest] = []

    def measure(job: Ingest) -> None:
        jobs.append(job)
        raise SparkFailed("that is enough")

    monkeypatch.setattr(ingest, "measure", measure)
    monkeypatch.setattr(session, "check_java", lambda: None)
    parser = argparse.ArgumentParser()
    command.declare("ingest", parser)
    with pytest.raises(CommandError, match="that is enough"):
        command.run(parser.parse_args(["a", "--to", target]))
    assert [job.format for job in jobs] == [format]


def test_a_wrong_schema_is_told_before_anything_is_started(tmp_path: Path) -> None:
    schema = tmp_path / "schema"
    schema.write_text("id bigit")
    parser = argparse.ArgumentParser()
    command.declare("ingest", parser)
    words = ["a", "--to", str(tmp_path / "out"), "--parse", "json", "--schema", str(schema)]
    with pytest.raises(
        CommandError, match="'id bigit' is none: 'bigit' is no type; did you mean bigint"
    ):
        command.run(parser.parse_args([*words, "-n", "127.0.0.1:1"]))
    schema.write_text('{"type": "struct", "fields": [{"name": "id"}]}')
    with pytest.raises(CommandError, match="is none: "):
        command.run(parser.parse_args([*words, "-n", "127.0.0.1:1"]))
