"""The tiers of the suite: which run a test is in, how long it may take, and whether it may repeat.

A test's tier comes from the longest row of PLACES that its path begins with, unless the test, its
class or its module has a marker of a tier. `smoke` is a choice from `interop` and `soak`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple


class Tier(StrEnum):
    """A run of the suite; tests/README.md says what each is for."""

    CHECK = "check"  # the form of the tree: scripts/check
    DEFAULT = "default"
    SMOKE = "smoke"
    INTEROP = "interop"
    SOAK = "soak"


class Place(NamedTuple):
    """What the tests of a folder or file are."""

    tier: Tier
    is_process: bool = False  # it waits for other processes: one that fails is repeated, alone


DEFAULT = Place(Tier.DEFAULT)
FOREIGN = Place(Tier.INTEROP, is_process=True)
KILLS = Place(Tier.SOAK, is_process=True)
LONG = Place(Tier.SOAK)

PLACES = {
    "": DEFAULT,
    "client/group/test_churn.py": KILLS,
    "console/web/test_actions_browser.py": FOREIGN,
    "console/web/test_browser.py": FOREIGN,
    "controller/test_etcd_program.py": FOREIGN,
    "interop": FOREIGN,
    "lake/test_failover.py": KILLS,
    "lake/test_kill.py": KILLS,
    "loss": KILLS,
    "loss/test_damage.py": DEFAULT,
    "loss/test_disk_errors.py": DEFAULT,
    "loss/test_following.py": DEFAULT,
    "loss/test_ledger.py": DEFAULT,
    "loss/test_planted_faults.py": DEFAULT,
    "loss/test_power_loss.py": DEFAULT,
    "loss/test_profiles.py": DEFAULT,
    "proxy/clients": FOREIGN,
    "scripts/processes/test_broker_group.py": KILLS,
    "scripts/test_helm.py": FOREIGN,
    "tidy": Place(Tier.CHECK),
}
# Markers that put a test into a tier, whatever its folder.
MARKERS = {"java": FOREIGN, "spark": FOREIGN, "interop": FOREIGN, "soak": LONG}

TEST_SECONDS = {
    Tier.CHECK: 120,
    Tier.DEFAULT: 120,
    Tier.SMOKE: 300,
    Tier.INTEROP: 600,
    Tier.SOAK: 900,
}


def place(path: PurePosixPath, markers: frozenset[str]) -> Place:
    """What a test is, by its path below tests/ and the names of its markers."""
    named = [found for name, found in MARKERS.items() if name in markers]
    return named[0] if named else _by_path(path)


def may_hold(path: PurePosixPath, text: str, tier: Tier) -> bool:
    """Whether a file with this text may have tests of the tier: the others need no reading."""
    if tier is not Tier.SMOKE and _by_path(path).tier is tier:
        return True
    names = [tier.value, *(name for name, found in MARKERS.items() if found.tier is tier)]
    if tier is Tier.SOAK:
        names.append("quarantine")
    return any(f"mark.{name}" in text for name in names)


def _by_path(path: PurePosixPath) -> Place:
    parents = [path.as_posix(), *(each.as_posix() for each in path.parents)]
    return next(PLACES[each] for each in (*parents, "") if each in PLACES)
