"""What `aerobee ingest` works out before Spark starts."""

from pathlib import Path
from typing import Self

import pytest

pytest.importorskip("pyspark")

from aerobee.client.blocking import MessageQueue
from aerobee.client.start_from import StartFrom
from aerobee.spark import ingest
from aerobee.spark.ingest import Ingest, check_target, measure
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
