"""The load that `scripts/bench --only client` puts on our own client, and the rows it makes."""

from __future__ import annotations

import json

import pytest
from aerobee.bench.loads import clientgen
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
