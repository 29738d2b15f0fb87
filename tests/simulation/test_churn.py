"""Members of a group that come, go and are killed, by a seed: no promise to the group is broken.

A run that fails prints what happened; its seed gives the same churn again.
"""

import logging
import os
from collections.abc import Callable, Iterator

import pytest
from aerobee.broker.groups.member_notices import MemberNotices
from aerobee.client.group.process_queue import ProcessQueue
from aerobee.client.push import assigned_queues
from aerobee.protocol.queues import allocation

from .churn import run
from .test_histories import lock_for_everybody

FIRST_SEED = int(os.environ.get("AEROBEE_SIMULATIONS_SEED", "6"))
QUICK = [1, 2, 3, 4, 5]
MANY = [pytest.param(FIRST_SEED + each, marks=pytest.mark.soak) for each in range(40)]

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Switch off the servers' logs, which take longer than their work."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", ["concurrent", "ordered"])
@pytest.mark.parametrize("seed", [*QUICK, *MANY])
def test_members_that_come_go_and_are_killed_lose_nothing(seed: int, kind: str) -> None:
    story = run(seed, ordered=kind == "ordered")
    assert not story.faults, "\n".join([*story.lines, *story.faults])
    print(
        f"{story.sent} sent, {story.repeats} came again, after {story.latest_repeat:.1f} s at most"
    )
    assert story.sent > 100
    assert story.repeats < story.sent / 2


def leave_without_a_word(patch: Patch) -> None:
    """A member that leaves does not report what it has settled."""

    async def persist_nothing(*given: object) -> None: ...

    patch.setattr(assigned_queues, "persist_surely", persist_nothing)


def leave_a_queue_out(patch: Patch) -> None:
    """The last queue is nobody's."""
    whole = allocation.STRATEGIES["AVG"]
    patch.setitem(
        allocation.STRATEGIES, "AVG", lambda own, queues, ids: whole(own, queues[:-1], ids)
    )


def say_nothing_of_changes(patch: Patch) -> None:
    """Members learn of one another only when they poll, each 20 s."""
    patch.setattr(MemberNotices, "tell", lambda notices, group: None)


def report_what_is_in_hand(patch: Patch) -> None:
    """The group's offset passes messages that nobody has settled."""
    whole = ProcessQueue.settle
    patch.setattr(
        ProcessQueue,
        "settle",
        lambda queue, offset: queue.next_offset if whole(queue, offset) >= 0 else -1,
    )


@pytest.mark.parametrize(
    ("plant", "kind", "text"),
    [
        (leave_without_a_word, "concurrent", "had left behind it"),
        (leave_a_queue_out, "concurrent", "not consumed"),
        (report_what_is_in_hand, "ordered", "before"),
        (say_nothing_of_changes, "concurrent", "s after the first time"),
        (lock_for_everybody, "ordered", "has one"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[Patch], None], kind: str, text: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = any(
        text in fault
        for seed in range(1, 4)
        for fault in run(seed, ordered=kind == "ordered").faults
    )
    assert found, f"no fault of 3 runs has {text!r}"
