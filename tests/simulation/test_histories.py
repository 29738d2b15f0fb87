"""Histories that a seed decides: none has a fault, and faults in the product are found.

A history that fails prints the line that repeats it.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aerobee.broker.groups.queue_locks import QueueLockGate, QueueLocks
from aerobee.broker.settings.config import BrokerConfig
from aerobee.client.errors import BrokerError
from aerobee.client.pull.reader import Reader
from aerobee.store.engine.sync import SyncPlan

from .command import repeat
from .history import run

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("AEROBEE_SIMULATIONS", "100"))
FIRST_SEED = int(os.environ.get("AEROBEE_SIMULATIONS_SEED", "11"))
QUICK = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
MANY = [pytest.param(FIRST_SEED + each, marks=pytest.mark.soak) for each in range(SEEDS)]


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Switch off the servers' logs, which take longer than their work."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [*QUICK, *MANY])
def test_a_history_has_no_fault(seed: int) -> None:
    story = run(seed)
    assert not story.faults, "\n".join([*story.lines, *story.faults, repeat(seed)])
    assert story.acknowledged > 50


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (BrokerError(2, "busy", "10.0.0.5:10911", "pull"), "can't be read"),
        (ValueError("what nobody expects"), "the history ends: ValueError"),
    ],
)
def test_an_error_in_a_history_is_a_fault_of_it(
    wrong: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pull(*given: object) -> None:
        raise wrong

    monkeypatch.setattr(Reader, "pull", pull)
    (fault,) = run(2, 1).faults
    assert text in fault


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    def told(hash_seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.simulation.command", "--from", "1", "--to", "2"]
        return subprocess.run(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=100
        ).stdout

    first = told("1")
    assert first.count(b" 0 faults") == 2
    assert told("2") == first


def answer_without_the_slave(patch: pytest.MonkeyPatch) -> None:
    """A SYNC_MASTER's answers don't wait for its slave."""
    patch.setattr(BrokerConfig, "acks_needed", property(lambda config: 0))


def answer_without_the_disk(patch: pytest.MonkeyPatch) -> None:
    """A sync reports that it is done without having reached the disk."""
    patch.setattr(SyncPlan, "run", lambda plan: None)


def lock_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """A queue's lock is given to each consumer that asks for it."""
    patch.setattr(QueueLocks, "lock", lambda locks, group, client, queues, now_ms: list(queues))


def lock_at_once(patch: pytest.MonkeyPatch) -> None:
    """A master gives locks from its start on, whatever the broker before it gave."""
    patch.setattr(QueueLockGate, "is_open", True)


def forget_locks(patch: pytest.MonkeyPatch) -> None:
    """A master that was handed the locks of the one before gives them to others."""
    patch.setattr(QueueLocks, "restore", lambda locks, table, now_ms: None)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (answer_without_the_slave, "lies before it"),  # a lost message
        (answer_without_the_disk, "lies before it"),
        (lock_for_everybody, "is locked by"),
        (lock_at_once, "is locked by"),
        (forget_locks, "is locked by"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = any(text in fault for seed in range(1, 21) for fault in run(seed).faults)
    assert found, f"no fault of 20 histories has {text!r}"
