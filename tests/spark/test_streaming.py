"""Streams, filters and sinks of a running cluster, end to end through PySpark."""

from pathlib import Path
from typing import Any

import pytest

from .programs import found_by

pytest.importorskip("pyarrow")

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program printed."""
    program = Path(__file__).with_name("stream_program.py")
    return found_by(program, str(tmp_path_factory.mktemp("streams")))


@pytest.mark.requirement(
    "Spark: Streams: limits, queues that come and go in mid-stream, topics that appear late"
)
def test_a_micro_batch_keeps_to_its_limit(found: dict[str, Any]) -> None:
    assert all(0 < rows <= 25 for rows in found["limited"])
    assert sum(found["limited"]) == 60


def test_a_query_that_goes_on_reads_only_what_is_new(found: dict[str, Any]) -> None:
    assert found["nothing new"] == []


@pytest.mark.requirement(
    "Spark: Streams: limits, queues that come and go in mid-stream, topics that appear late"
)
def test_queues_that_a_topic_gets_or_loses_in_mid_stream_are_read(found: dict[str, Any]) -> None:
    assert found["grown"] == list(range(104))


@pytest.mark.requirement(
    "Spark: Streams: limits, queues that come and go in mid-stream, topics that appear late"
)
def test_a_topic_that_appears_late_is_read_from_its_first_message(found: dict[str, Any]) -> None:
    assert found["late"] == list(range(9))


@pytest.mark.requirement("Spark: The group's progress is told to the broker")
def test_the_groups_progress_is_told_to_the_broker(found: dict[str, Any]) -> None:
    assert found["committed"] == 5


def test_a_stream_with_an_end_is_refused(found: dict[str, Any]) -> None:
    assert "option endingOffsets is for batch reads; a stream has no end" in found["no end"]


@pytest.mark.requirement("Spark: Empty topics and queues")
def test_an_empty_topic_has_no_rows(found: dict[str, Any]) -> None:
    assert found["empty"] == [0, []]


@pytest.mark.requirement(
    "Spark: Offsets that went back: a topic deleted and created again, a lost store"
)
def test_a_topic_that_was_deleted_and_made_anew_is_told_and_gone_on_with_where_that_is_allowed(
    found: dict[str, Any],
) -> None:
    error, rows, values = found["again"]
    assert "queue 0 of topic again on broker-a are to be read and the broker holds 0 to 2" in error
    assert "set failOnDataLoss to false to go on with what is left" in error
    assert rows == 2
    assert values == [*range(6), 8, 9]  # from its end at that moment on


@pytest.mark.requirement("Spark: Tags and conditions at the broker")
def test_tags_and_conditions_choose_rows(found: dict[str, Any]) -> None:
    assert found["tags"] == 40
    assert found["sql"] == 4


@pytest.mark.requirement("Spark: A broker's files give the same rows")
def test_the_brokers_files_give_the_same_rows(found: dict[str, Any]) -> None:
    assert found["files"] == list(range(104))


@pytest.mark.requirement(
    "Spark: `subscribe`, `subscribePattern`, `assign`, offsets and times per queue"
)
def test_assigned_queues_only_are_read(found: dict[str, Any]) -> None:
    assert found["assigned"] == 30 + 10 + 2


@pytest.mark.requirement("Spark: Sink: once, in transactions, repeats dropped")
def test_each_row_is_written_once_with_all_its_columns(found: dict[str, Any]) -> None:
    assert found["written"] == [100, 100]
    assert found["row"] == ["k7", "tag", "groß"]


@pytest.mark.requirement("Spark: Sink: once, in transactions, repeats dropped")
def test_rows_in_transactions_arrive(found: dict[str, Any]) -> None:
    assert found["whole"] == 100


@pytest.mark.requirement("Spark: A stream copied into a topic, rows with a delay")
def test_rows_with_a_delay_come_after_it(found: dict[str, Any]) -> None:
    assert found["delayed"] == [0, 3]


@pytest.mark.requirement("Spark: A stream copied into a topic, rows with a delay")
def test_a_stream_is_copied_into_a_topic(found: dict[str, Any]) -> None:
    assert found["copied"] == 100


@pytest.mark.requirement("Spark: Sink: once, in transactions, repeats dropped")
def test_dedup_drops_what_a_task_has_sent_twice(found: dict[str, Any]) -> None:
    assert found["twice"] == [40, 20, 0]


def test_a_task_that_is_tried_again_gives_its_rows_the_same_ids(found: dict[str, Any]) -> None:
    rows, distinct, once = found["tried"]
    assert rows > 600  # what the first try has sent is there
    assert distinct == once == 600


def test_in_transactions_nobody_sees_what_a_failed_try_has_sent(found: dict[str, Any]) -> None:
    assert found["tried-whole"] == [600, 600, 600]
