"""Half messages of the last seconds, found by topic and message id."""

import pytest
from aerobee.proxy.messages import transactions
from aerobee.proxy.messages.transactions import EACH_MAX, RecentTransactions, TransactionId

from ...clocks import Seconds


def half(number: int, message_id: str = "M") -> TransactionId:
    return TransactionId("broker-a", number, number, message_id)


def test_the_latest_is_taken_first_and_each_once() -> None:
    table = RecentTransactions(30)
    for number in range(EACH_MAX + 5):
        table.put("T", half(number))
    taken = [table.take("T", "M") for _ in range(EACH_MAX)]
    assert taken == [half(number) for number in reversed(range(5, EACH_MAX + 5))]
    assert table.take("T", "M") is None
    assert len(table) == 0


def test_topics_are_apart() -> None:
    table = RecentTransactions(30)
    table.put("T", half(1))
    assert table.take("U", "M") is None
    assert table.take("T", "M") == half(1)


def test_it_forgets_after_its_time_and_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Seconds()
    table = RecentTransactions(30, clock)
    table.put("T", half(1))
    clock.now += 30
    assert table.take("T", "M") is None
    table.put("T", half(1, "old"))
    clock.now += 30
    table.put("T", half(1, "new"))
    assert len(table) == 1
    monkeypatch.setattr(transactions, "IDS_MAX", 2)
    for name in "abc":
        table.put("T", half(1, name))
    assert [table.take("T", name) is None for name in ("new", "a", "b", "c")] == [
        True,
        True,
        False,
        False,
    ]
