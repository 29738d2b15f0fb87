"""The job over a stream of flights gives what pandas computes on the data file.

`AEROBEE_FLIGHTS` is how many of the 336,776 are replayed.
"""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from aerobee.scripts.output.command_error import CommandError
from aerobee.tools.demo import read_flights

from .programs import Driver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

FLIGHTS = int(os.environ.get("AEROBEE_FLIGHTS", "6000"))


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, str, str], tuple[int, float | None]]:
    """By day, carrier and airport: how many departed, and their mean delay."""
    try:
        flights = read_flights(FLIGHTS)
    except CommandError as wrong:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the job: {wrong}")
        pytest.skip(str(wrong))
    days = flights["time_hour"].str.slice(0, 10)
    groups = flights.groupby([days, "carrier", "origin"])["dep_delay"]
    return {
        key: (int(delays.count()), None if delays.count() == 0 else float(delays.mean()))
        for key, delays in groups
    }


@pytest.fixture(scope="module")
def found(
    name_server: str,
    expected: dict[Any, Any],
    driver: Driver,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What the program printed."""
    program = Path(__file__).with_name("flights_program.py")
    folder = tmp_path_factory.mktemp("flights")
    return driver.found_by(program, name_server, str(folder), str(FLIGHTS))


def test_the_windows_in_the_files_are_those_of_pandas(
    found: dict[str, Any], expected: dict[tuple[str, str, str], tuple[int, float | None]]
) -> None:
    files = {(day, carrier, origin): (n, mean) for day, carrier, origin, n, mean in found["files"]}
    assert len(files) == len(found["files"])
    assert files == expected


def test_windows_are_closed_while_flights_still_come(found: dict[str, Any]) -> None:
    assert 0 < found["first"] < found["second"]


def test_the_topic_has_the_same_windows_as_the_files(found: dict[str, Any]) -> None:
    told = []
    for key, tag, mean in found["messages"]:
        assert (key, tag) == (f"{mean['carrier']}-{mean['origin']}", mean["carrier"])
        day = mean["begin"][:10]
        told.append([day, tag, mean["origin"], mean["departed"], mean.get("mean_minutes")])
    assert sorted(told, key=str) == sorted(found["files"], key=str)
