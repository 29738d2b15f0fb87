"""Handles: read, extended, refused."""

import pytest
from aerobee.proxy.handles.receipt import changed, read
from aerobee.proxy.messages.status import Code, StatusError
from hypothesis import given
from hypothesis import strategies as st

TEXT = "3 1700000000000 60000 2 1 broker-a 5 7"


def test_a_handle_is_the_broker_s_with_the_log_offset() -> None:
    receipt = read(f"{TEXT} 4096")
    assert (receipt.text, receipt.log_offset) == (TEXT, 4_096)
    assert receipt.full_text == f"{TEXT} 4096"
    assert receipt.place == ("broker-a", 5, 7)
    assert receipt.visible_ms == 1_700_000_060_000
    assert receipt.topic("T", "G") == "%RETRY%G_T"
    assert read(TEXT).log_offset == -1


def test_a_changed_handle_keeps_place_and_log_offset() -> None:
    new = changed(read(f"{TEXT} 4096"), 1_800_000_000_000, 10_000, 3)
    assert new.full_text == "7 1800000000000 10000 3 1 broker-a 5 7 4096"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has 1 words"),
        ("1 2 3 4 0 b 5", "it has 7 words"),
        (f"{TEXT} 1 2", "it has 10 words"),
        (TEXT.replace("60000", "x"), "its invisible time is 'x'"),
        (TEXT.replace(" 1 b", " 7 b"), "its retry flag is '7'"),
        (f"{TEXT} x", "its log offset is 'x'"),
        ("9" * 2_000, "the limit is 1024"),
    ],
)
def test_a_forged_handle_is_refused(text: str, said: str) -> None:
    with pytest.raises(StatusError) as caught:
        read(text)
    assert caught.value.code == Code.INVALID_RECEIPT_HANDLE
    assert said in caught.value.message


@given(st.text() | st.lists(st.sampled_from(["1", "-1", "x", "0", ""]), max_size=10).map(" ".join))
def test_a_text_is_a_handle_or_refused(text: str) -> None:
    try:
        found = read(text)
    except StatusError:
        return
    assert found.text in text
