"""The load that `scripts/bench --only client` puts on our own client, and the rows it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aerobee.bench.client_measures import Client, _row, clients
from aerobee.bench.loads import clientgen
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import AerobeeCluster
from aerobee.testing import LocalCluster


async def test_so_many_messages_are_sent_and_received_behind_those_that_warm_up(
    aerobee_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = (aerobee_cluster.name_server, "Load")
    clock = clientgen.Clock(100)
    await clientgen.send(*where, clock, in_flight=8)
    assert clock.seen == clock.total == 120
    assert clock.report()["count"] == 99  # the clock starts with the first of them

    clock = clientgen.Clock(100)
    await clientgen.receive(*where, clock, "Readers")
    report = json.loads(capsys.readouterr().out)
    assert clock.seen == 120
    assert report["event"] == "rate"
    assert 0 < report["count"] < 100
    assert report["seconds"] > 0
    assert report["cpu_us"] > 0


def never(folder: Path, words: list[str]) -> Reporter:
    raise AssertionError(f"{folder} {words}")


@pytest.mark.parametrize(("seconds", "holds"), [(1.0, True), (2.0, False)])
def test_a_row_is_the_median_of_its_rounds_and_says_whether_it_is_enough(
    seconds: float, holds: bool, tmp_path: Path
) -> None:
    client = Client("ours", never, 256, "256 under way")
    side = AerobeeCluster(tmp_path)
    found = [{"count": 100.0, "seconds": each, "cpu_us": 7.0} for each in (0.1, seconds, 50.0)]
    row = _row(client, side, "send", found, 100)
    assert (row.name, row.holds) == ("Sends to our broker, ours", holds)
    assert (row.value, row.wanted) == (f"{100 / seconds:,.0f}/s", ">= 100/s")
    assert row.note == "256 under way, CPU 7.0 us a message"


def test_the_cpp_binding_is_measured_where_a_python_has_it() -> None:
    names = [client.name for client in clients(None)]
    assert [client.name for client in clients(Path("python"))] == [*names, "the C++ binding"]
