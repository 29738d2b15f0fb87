"""`aerobee controller rebuild` at a controller that has lost its state."""

import asyncio
from pathlib import Path

from ...broker.controlled.members import NAME, Cluster
from ...waiting import until
from ..command import Inside


async def run(inside: Inside, *words: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(inside, "controller", "rebuild", *words)


async def test_the_members_are_shown_and_one_is_elected_by_hand(
    tmp_path: Path, inside: Inside
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.start(2)
        port, address = cluster.controller.port, cluster.controller.address
        await cluster.controller.stop()
        await cluster.start_controller(tmp_path / "empty", port)
        groups = cluster.controller.groups
        await until(lambda: NAME in groups and len(groups[NAME].members) == 2)
        code, out, _ = await run(inside, NAME, "-a", address)
        assert code == 0
        assert [line.split()[:3] for line in out.splitlines()[:3]] == [
            ["ID", "ADDRESS", "ROLE"],
            ["1", cluster.members[0].address, "slave"],
            ["2", cluster.members[1].address, "slave"],
        ]
        assert "master epoch 0, no master; the longest log has broker" in out
        code, out, _ = await run(inside, NAME, "-a", address, "--elect", "2")
        assert (code, out.splitlines()[2].split()[2]) == (0, "master")
        assert groups[NAME].master_epoch == 2
        await until(lambda: cluster.members[1].election.is_master)
        code, _, error = await run(inside, "other", "-a", address)
        assert code == 1
        assert "knows no broker name other" in error


async def test_a_controller_that_is_not_there_and_a_name_that_is_missing_are_told(
    inside: Inside,
) -> None:
    code, _, error = await run(inside, NAME, "-a", "127.0.0.1:1")
    assert code == 1
    assert "no controller leads: can't connect to 127.0.0.1:1" in error
    code, _, error = await run(inside)
    assert (code, "rebuild needs the name of a broker" in error) == (1, True)
