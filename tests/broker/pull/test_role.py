"""What a slave decides about its pulls, with and without its master."""

import pytest
from aerobee.broker.pull.role import MASTER_MS, MasterPullRole, SlavePullRole
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.headers.pull import PullMessage
from aerobee.store.base import status
from aerobee.store.engine.store import Found

PULL = PullMessage("g", "T", 0, 7, 32, 0, 0, 0, 0)
OUTSIDE = [
    status.OFFSET_FOUND_NULL,
    status.OFFSET_OVERFLOW_BADLY,
    status.OFFSET_OVERFLOW_ONE,
    status.OFFSET_TOO_SMALL,
    status.NO_MATCHED_LOGIC_QUEUE,
    status.NO_MESSAGE_IN_QUEUE,
]


def slave(*, is_master_there: bool = True) -> SlavePullRole:
    return SlavePullRole(BrokerConfig(slave_read_enable=True), lambda: is_master_there)


def found_with(code: int) -> Found:
    return Found(code, 9, 3, 9, [], 0, 0)


@pytest.mark.parametrize("code", OUTSIDE)
def test_a_slave_never_corrects_an_offset_outside_its_queue(code: int) -> None:
    assert slave().next_offset(PULL, found_with(code)) == 7
    assert MasterPullRole().next_offset(PULL, found_with(code)) == 9


@pytest.mark.parametrize("code", OUTSIDE)
def test_a_slave_sends_a_miss_to_its_master_and_without_one_lets_it_wait(code: int) -> None:
    with_master, alone = slave(), slave(is_master_there=False)
    assert with_master.code(PULL, found_with(code)) == codes.PULL_RETRY_IMMEDIATELY
    assert alone.code(PULL, found_with(code)) == codes.PULL_NOT_FOUND
    assert alone.may_wait(PULL, found_with(code))
    assert (with_master.ends_long_polls, alone.ends_long_polls) == (True, False)
    assert (with_master.wait_ms(60_000), alone.wait_ms(60_000)) == (MASTER_MS, 60_000)
    assert with_master.wait_ms(MASTER_MS - 1) == MASTER_MS - 1


@pytest.mark.parametrize(
    ("code", "is_slow", "master", "suggested"),
    [
        (status.FOUND, True, 3, 2),
        (status.FOUND, False, 3, 0),
        (status.FOUND, False, 2, 2),
        (status.NO_MATCHED_MESSAGE, True, 3, 0),
    ],
)
def test_a_slave_suggests_a_slave_only_with_messages_that_are_slow_to_read(
    code: int, is_slow: bool, master: int, suggested: int
) -> None:
    group = SubscriptionGroupConfig("g", broker_id=master, which_broker_when_consume_slowly=2)
    assert slave().suggested_broker(group, found_with(code), is_slow=is_slow) == suggested
