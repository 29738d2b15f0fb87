"""Every crash of a workload: at each change of the disk, with many sets of surviving writes."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from .power import Cut, Image, PowerDisk
from .workload import STEPS, Point, Run, judge, on

Names = Sequence[str]


class Crash(NamedTuple):
    """A moment in a workload: what a power cut or a kill leaves, and what was promised by then."""

    cut: Cut
    killed: Image
    point: Point


class Outcome(NamedTuple):
    """The number of crash states, and of those in which each fault occurred."""

    states: int
    faults: Counter[str]


def crashes(names: Names, *, sync_flush: bool) -> list[Crash]:
    """The crashes in the last step of a workload, and right after it.

    Crashes in earlier steps belong to the shorter workloads that end there. Opening the store
    belongs to the first step.
    """
    disk = PowerDisk()
    found: list[Crash] = []
    with on(disk):
        run = Run(disk, sync_flush=sync_flush)

        def note() -> None:
            found.append(Crash(disk.cut(), disk.killed(), run.point()))

        disk.on_step = note if len(names) <= 1 else None
        run.open()
        for number, name in enumerate(names, 1):
            if number == len(names):
                disk.on_step = note
            STEPS[name](run)
        disk.on_step = None
        note()
    return found


def states(crash: Crash, most: int, draw: Random) -> Iterator[tuple[Image, bool]]:
    """The states that a crash can leave, each with True for a power cut and False for a kill."""
    if most > 2 or draw.random() < 0.1:
        yield crash.killed, False
    for image in crash.cut.images(most, draw):
        yield image, True


def explore(
    names: Names, *, sync_flush: bool, most: int, met: set[int] | None = None, every: int = 8
) -> Outcome:
    """All crashes of the last step of a workload, each with up to `most` sets of survivors.

    In one of `every` states the store also continues for a moment and is killed a second time.
    `met` holds the cases that were judged: equal files and equal notes give an equal judgement.
    """
    met = set() if met is None else met
    draw = Random(f"{names} {sync_flush}")  # a seed: the same states each time
    found: Counter[str] = Counter()
    count = 0
    for at, crash in enumerate(crashes(names, sync_flush=sync_flush)):
        for image, power in states(crash, most, draw):
            count += 1
            again = count % every == 0
            case = _case(image, crash.point, sync_flush, power, again)
            if case in met:
                continue
            met.add(case)
            faults = judged(image, crash.point, sync_flush, power=power, again=again)
            if faults:
                cause = "power cut" if power else "kill"
                mode = "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"
                found[f"{mode}, {' / '.join(names)}, {cause} at change {at}: {faults[0]}"] += 1
    return Outcome(count, found)


def _case(image: Image, point: Point, *rest: bool) -> int:
    """A hash of all that a judgement depends on."""
    notes = tuple(point.ledger.events)
    return hash((frozenset(image.items()), notes, point.forgiven, rest))


def judged(image: Image, point: Point, sync_flush: bool, *, power: bool, again: bool) -> list[str]:
    """The conditions that do not hold; a store that can't be opened is a fault as well."""
    try:
        return judge(image, point, sync_flush=sync_flush, power=power, again=again)
    except Exception as wrong:
        return [f"{type(wrong).__name__}: {wrong}"]


def workloads(longest: int) -> Iterator[tuple[str, ...]]:
    """All workloads of up to `longest` steps."""
    for length in range(1, longest + 1):
        yield from itertools.product(STEPS, repeat=length)


def together(outcomes: Iterable[Outcome]) -> Outcome:
    """The sum of many outcomes."""
    count, found = 0, Counter[str]()
    for outcome in outcomes:
        count += outcome.states
        found += outcome.faults
    return Outcome(count, found)


# By the length of a workload: with how many sets of survivors each of its crashes is examined.
MOST = {1: 30, 2: 6, 3: 1}
_met: set[int] = set()  # in this process


def job(task: tuple[tuple[str, ...], bool]) -> Outcome:
    """One workload in one flush mode."""
    names, sync_flush = task
    return explore(names, sync_flush=sync_flush, most=MOST[len(names)], met=_met)
