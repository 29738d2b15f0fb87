"""kill -9 of two writers of one table, of the broker and of the name server: the table has every
message once.

`AEROBEE_LAKE_KILLS` is the number of rounds, `AEROBEE_KILLS_SEED` the seed of who is killed when.
"""

import os
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.commits import SNAPSHOTS_MAX

from .kills import KINDS, running

ROUNDS = int(os.environ.get("AEROBEE_LAKE_KILLS", "100"))
DDL = "number bigint"
SEED = os.environ.get("AEROBEE_KILLS_SEED", "1")


@pytest.mark.parametrize(
    ("rounds", "json"),
    [
        pytest.param(len(KINDS), "", marks=pytest.mark.smoke),
        (ROUNDS // 2, ""),
        pytest.param(len(KINDS), DDL, marks=pytest.mark.smoke),
        (ROUNDS - ROUNDS // 2, DDL),
    ],
)
async def test_a_table_has_every_message_once_whoever_is_killed(
    rounds: int, json: str, tmp_path: Path
) -> None:
    """With columns of JSON, each message is in the table or in that of dead letters."""
    print(f"seed {SEED}")
    draw = Random(f"{SEED} {rounds} {json}")
    one_of_each = draw.sample(list(KINDS), len(KINDS))
    others = draw.choices(list(KINDS), list(KINDS.values()), k=max(0, rounds - len(KINDS)))
    async with running(tmp_path, draw, json) as kills:
        for kind in (one_of_each + others)[:rounds]:
            await kills.kill(kind)
        found = await kills.finish()
    print(found)
    assert found.is_exact, found
    assert found.commits >= min(rounds, SNAPSHOTS_MAX)
    assert bool(found.dead) == bool(json)
    assert found.acknowledged > rounds
