"""Transaction ids: read as they were written; any other text is refused."""

import pytest
from aerobee.proxy.handles import receipt
from aerobee.proxy.messages.status import StatusError
from aerobee.proxy.messages.transactions import TransactionId, read
from hypothesis import given
from hypothesis import strategies as st


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


@given(st.text() | st.lists(st.sampled_from(["1", "-1", "x", "0", ""]), max_size=10).map(" ".join))
def test_a_text_is_a_handle_or_refused(text: str) -> None:
    try:
        found = receipt.read(text)
    except StatusError:
        return
    assert found.text in text
