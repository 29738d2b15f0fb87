"""Power cuts and kills at every change of the disk, and what the store makes of what is left.

`AEROBEE_LOSS_HISTORIES` is the number of long histories, `AEROBEE_LOSS_SEED` the first seed.
"""

import multiprocessing
import os
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from random import Random

import pytest

from . import explore
from .explore import Crash
from .power import PowerDisk
from .workload import STEPS, Run, on, recovered

STATES_MIN = {2: 5_000, 3: 100_000}  # by the number of steps of a workload
HISTORIES = int(os.environ.get("AEROBEE_LOSS_HISTORIES", "6"))
FIRST_SEED = int(os.environ.get("AEROBEE_LOSS_SEED", "1"))
STEPS_PER_LIFE = 25  # at most, between two crashes
LIVES = 20  # of a history


@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_no_crash_in_any_short_workload_loses_anything(
    steps: int, capsys: pytest.CaptureFixture[str], quiet: None
) -> None:
    jobs = [(names, mode) for mode in (False, True) for names in explore.workloads(steps)]
    assert len(jobs) == 2 * sum(len(STEPS) ** length for length in range(1, steps + 1))
    with ExitStack() as stack:
        done: Iterable[explore.Outcome] = map(explore.job, jobs)
        if steps > 2:
            # Python 3.12 warns of threads that others may have left; ours need none of their locks.
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", DeprecationWarning)
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(os.cpu_count()))
            done = pool.imap_unordered(explore.job, jobs, chunksize=16)
        found = explore.together(done)
    with capsys.disabled():
        print(f"\n{found.states} crash states of {len(jobs)} workloads")
    assert not found.faults, "\n".join(list(found.faults)[:10])
    assert found.states >= STATES_MIN[steps]


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + HISTORIES))
def test_a_long_history_with_crashes_of_all_kinds_loses_nothing(
    seed: int, sync_flush: bool, quiet: None
) -> None:
    draw = Random(f"{seed} {sync_flush}")
    names = list(STEPS)
    disk = PowerDisk()
    run = Run(disk, sync_flush=sync_flush)
    with on(disk):
        run.open()
    for life in range(LIVES):
        # The power goes at a random change of the disk, also in a recovery.
        left = [draw.randrange(1, 12 * STEPS_PER_LIFE)]
        found: list[Crash] = []

        def step(run: Run = run, left: list[int] = left, found: list[Crash] = found) -> None:
            left[0] -= 1
            if left[0] == 0:
                found.append(Crash(run.disk.cut(), run.disk.killed(), run.point()))

        run.disk.on_step = step
        with on(run.disk):
            for _ in range(STEPS_PER_LIFE):
                if found:
                    break
                STEPS[draw.choice(names)](run)
        run.disk.on_step = None
        run.ledger.check()
        if not found:
            step(left=[1])
        crash = found[0]
        for image, power in explore.states(crash, 4, draw):
            faults = explore.judged(image, crash.point, sync_flush, power=power, again=True)
            assert not faults, (seed, life, faults[0])
        image = next(crash.cut.images(1, draw))
        run = recovered(
            image, crash.point, sync_flush=sync_flush, power=True, first=1_000_000 * (life + 1)
        )
        run.ledger.check()
        run.ms += 10_000_000 * life
        with on(run.disk):
            run.store.make_room()
