"""The clients that are compared, and their rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from aerobee.bench.clients import Client, client_row, clients
from aerobee.harness.child import Reporter


def never(folder: Path, words: list[str]) -> Reporter:
    raise AssertionError(f"{folder} {words}")


@pytest.mark.parametrize(("seconds", "holds"), [(1.0, True), (2.0, False)])
def test_a_row_is_the_median_of_its_rounds_and_says_whether_it_is_enough(
    seconds: float, holds: bool
) -> None:
    client = Client("ours", never, 256, "256 under way")
    found = [{"count": 100.0, "seconds": each, "cpu_us": 7.0} for each in (0.1, seconds, 50.0)]
    row = client_row(client, "aerobee", "send", found, ">= 100/s")
    assert (row.name, row.holds) == ("Sends to our broker, ours", holds)
    assert (row.value, row.wanted) == (f"{100 / seconds:,.0f}/s", ">= 100/s")
    assert row.note == "256 under way, CPU 7.0 us a message"


def test_the_cpp_binding_is_measured_where_a_python_has_it() -> None:
    names = [client.name for client in clients(None)]
    assert [client.name for client in clients(Path("python"))] == [*names, "the C++ binding"]
