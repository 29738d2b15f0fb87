"""Streams, filters and sinks on a running cluster, end to end through PySpark."""

from pathlib import Path
from typing import Any

import pytest

from .programs import Driver

pytest.importorskip("pyarrow")

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]


@pytest.fixture(scope="module")
def found(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results that the program printed."""
    program = Path(__file__).with_name("stream_program.py")
    return driver.found_by(program, str(tmp_path_factory.mktemp("streams")))


def test_a_micro_batch_keeps_its_limit(found: dict[str, Any]) -> None:
    assert all(0 < rows <= 25 for rows in found["limited"])
    assert sum(found["limited"]) == 60


def test_a_restarted_query_reads_only_new_messages(found: dict[str, Any]) -> None:
    assert found["nothing new"] == []


def test_queues_added_or_removed_during_the_stream_are_read(found: dict[str, Any]) -> None:
    assert found["grown"] == list(range(104))


def test_a_topic_that_appears_late_is_read_from_its_first_message(found: dict[str, Any]) -> None:
    assert found["late"] == list(range(9))


def test_the_offsets_of_the_group_are_committed_to_the_broker(found: dict[str, Any]) -> None:
    assert found["committed"] == 5


def test_a_stream_with_an_end_is_refused(found: dict[str, Any]) -> None:
    assert "option endingOffsets is for batch reads; a stream has no end" in found["no end"]


def test_an_empty_topic_has_no_rows(found: dict[str, Any]) -> None:
    assert found["empty"] == [0, []]


def test_a_recreated_topic_raises_an_error_or_is_read_on_without_fail_on_data_loss(
    found: dict[str, Any],
) -> None:
    error, rows, values = found["again"]
    assert "queue 0 of topic again on broker-a are to be read and the broker holds 0 to 2" in error
    assert "set failOnDataLoss to false to go on with what is left" in error
    assert rows == 2
    assert values == list(range(10))  # from its first message on


def test_tags_and_conditions_select_rows(found: dict[str, Any]) -> None:
    assert found["tags"] == 40
    assert found["sql"] == 4


def test_the_files_of_the_broker_give_the_same_rows(found: dict[str, Any]) -> None:
    assert found["files"] == list(range(104))


def test_only_assigned_queues_are_read(found: dict[str, Any]) -> None:
    assert found["assigned"] == 30 + 10 + 2


def test_each_row_is_written_once_with_all_its_columns(found: dict[str, Any]) -> None:
    assert found["written"] == [100, 100]
    assert found["row"] == ["k7", "tag", "groß"]


def test_rows_sent_in_transactions_arrive(found: dict[str, Any]) -> None:
    assert found["whole"] == 100


def test_rows_with_a_delay_arrive_after_it(found: dict[str, Any]) -> None:
    assert found["delayed"] == [0, 3]


def test_a_stream_is_copied_into_a_topic(found: dict[str, Any]) -> None:
    assert found["copied"] == 100


def test_dedup_drops_rows_that_a_task_sent_twice(found: dict[str, Any]) -> None:
    assert found["twice"] == [40, 20, 0]


def test_a_retried_task_gives_its_rows_the_same_ids(found: dict[str, Any]) -> None:
    rows, distinct, once = found["tried"]
    assert rows > 600  # the rows that the first attempt sent are stored
    assert distinct == once == 600


def test_with_transactions_no_consumer_sees_rows_of_a_failed_attempt(found: dict[str, Any]) -> None:
    assert found["tried-whole"] == [600, 600, 600]
