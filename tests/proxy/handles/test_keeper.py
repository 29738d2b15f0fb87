"""Kept handles: renewed by steps, given up after failures, found in their newest form."""

from typing import Any

import pytest
from aerobee.protocol.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from aerobee.proxy.handles.keeper import Keeper
from aerobee.proxy.handles.receipt import Receipt, changed, read
from aerobee.proxy.messages.status import Code, StatusError
from aerobee.proxy.settings.config import ProxyConfig

BEGIN = 1_700_000_000_000
FIRST = f"3 {BEGIN} 60000 2 0 broker-a 5 7 4096"
HOUR_MS = 3_600_000


class Brokers:
    """A broker that grants each change; its clock is moved by the test."""

    def __init__(self) -> None:
        self.ms = BEGIN
        self.changes: list[int] = []
        self.acked: list[str] = []
        self.error: StatusError | None = None
        self.policy = GroupRetryPolicy()

    def now_ms(self) -> int:
        return self.ms

    async def ack(self, group: str, topic: str, receipt: Receipt) -> None:
        if self.error is not None:
            raise self.error
        self.acked.append(receipt.text)

    async def change(self, group: str, topic: str, receipt: Receipt, ms: int) -> Receipt:
        if self.error is not None:
            raise self.error
        self.changes.append(ms)
        return changed(receipt, self.ms, ms, 2)

    async def group(self, group: str) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig(group, group_retry_policy=self.policy)


def keeping(attempt: int = 1) -> tuple[Any, Keeper]:
    """A broker, and a keeper that renews one message."""
    brokers: Any = Brokers()
    keeper = Keeper(brokers, brokers, brokers, ProxyConfig())
    keeper.keep("c", "G", "T", "M", read(FIRST), attempt=attempt)
    return brokers, keeper


async def test_a_message_is_renewed_shortly_before_its_time_by_growing_steps() -> None:
    brokers, keeper = keeping()
    brokers.ms += 49_000
    await keeper.renew_due()
    assert brokers.changes == []
    for _ in range(6):
        kept = keeper.find("c", "G", "M", read(FIRST))
        assert kept is not None
        brokers.ms = kept.receipt.visible_ms - 5_000
        await keeper.renew_due()
    assert brokers.changes == [60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000]


@pytest.mark.parametrize(
    ("policy", "attempt", "wait"),
    [
        (GroupRetryPolicy(), 1, 10_000),
        (GroupRetryPolicy(), 3, 60_000),
        (GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1_000, 5_000, 2)), 2, 2_000),
        (GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1_000, 5_000, 2)), 9, 5_000),
        (GroupRetryPolicy("CUSTOMIZED", None, CustomizedRetryPolicy([1, 2, 3])), 9, 3),
    ],
)
async def test_after_three_hours_it_comes_back_as_a_retry_does(
    policy: GroupRetryPolicy, attempt: int, wait: int
) -> None:
    brokers, keeper = keeping(attempt)
    brokers.policy = policy
    brokers.ms += 3 * HOUR_MS
    await keeper.renew_due()
    assert brokers.changes == [wait]
    brokers.ms += HOUR_MS
    await keeper.renew_due()
    assert (brokers.changes, len(keeper)) == ([wait], 0)


@pytest.mark.parametrize(
    ("code", "rounds"), [(Code.INVALID_RECEIPT_HANDLE, 1), (Code.PROXY_TIMEOUT, 3)]
)
async def test_failures_end_a_renewal(code: Code, rounds: int) -> None:
    brokers, keeper = keeping()
    brokers.ms += 55_000
    brokers.error = StatusError(code, "no")
    for _ in range(rounds):
        assert len(keeper) == 1
        await keeper.renew_due()
    assert (len(keeper), keeper.failures) == (0, rounds)


async def test_a_success_forgives_failures() -> None:
    brokers, keeper = keeping()
    for _ in range(5):
        brokers.ms += 55_000
        brokers.error = StatusError(Code.PROXY_TIMEOUT, "no")
        await keeper.renew_due()
        brokers.error = None
        await keeper.renew_due()
    assert len(keeper) == 1


async def test_an_ack_uses_the_newest_handle_and_forgets_it_when_answered() -> None:
    brokers, keeper = keeping()
    brokers.ms += 55_000
    await keeper.renew_due()
    brokers.error = StatusError(Code.PROXY_TIMEOUT, "no")
    with pytest.raises(StatusError):
        await keeper.ack("c", "G", "T", "M", read(FIRST))
    assert len(keeper) == 1
    brokers.error = None
    await keeper.ack("c", "G", "T", "M", read(FIRST))
    assert (brokers.acked, len(keeper)) == ([f"7 {BEGIN + 55_000} 60000 2 0 broker-a 5 7"], 0)


async def test_a_changed_message_is_not_renewed_but_found() -> None:
    brokers, keeper = keeping()
    new = await keeper.change("c", "G", "T", "M", read(FIRST), 20_000)
    brokers.ms += 15_000
    await keeper.renew_due()
    assert brokers.changes == [20_000]
    await keeper.ack("c", "G", "T", "M", read(FIRST))
    assert brokers.acked == [new.text]


async def test_handles_of_others_are_not_mixed_up() -> None:
    brokers, keeper = keeping()
    await keeper.change("c", "G", "T", "M", read(FIRST), 20_000)
    for client_id, group, message_id in (("d", "G", "M"), ("c", "H", "M"), ("c", "G", "N")):
        await keeper.ack(client_id, group, "T", message_id, read(FIRST))
    assert brokers.acked == [read(FIRST).text] * 3


async def test_a_client_that_is_gone_gives_its_messages_back() -> None:
    brokers, keeper = keeping()
    await keeper.release("other")
    assert (brokers.changes, len(keeper)) == ([], 1)
    await keeper.release("c", "other")
    assert len(keeper) == 1
    await keeper.release("c", "G")
    assert (brokers.changes, len(keeper)) == ([1_000], 0)


async def test_a_keeper_that_stops_gives_all_back() -> None:
    brokers, keeper = keeping()
    keeper.start()
    await keeper.stop()
    assert (brokers.changes, len(keeper)) == ([1_000], 0)
