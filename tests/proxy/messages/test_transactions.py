"""Transaction ids are read as they were written, or refused; half messages of the last seconds are
found by topic and message id."""

import pytest
from aerobee.proxy.messages import transactions
from aerobee.proxy.messages.status import StatusError
from aerobee.proxy.messages.transactions import EACH_MAX, RecentTransactions, TransactionId, read
from hypothesis import given
from hypothesis import strategies as st

from ...clocks import Seconds


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.text("ab-_9"), st.text())
def test_an_id_is_read_as_it_was_written(
    queue_offset: int, log_offset: int, broker: str, message_id: str
) -> None:
    written = TransactionId(broker, queue_offset, log_offset, message_id)
    assert read(written.text) == written


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(StatusError):
        read(text)


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
