"""Texts of gRPC's headers: time-outs and messages."""

from urllib.parse import unquote

import pytest
from aerobee.proxy.http2.status import MESSAGE_CHARS_MAX, encoded, seconds_of
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"2H", 7_200), (b"3M", 180), (b"20S", 20), (b"1500m", 1.5), (b"5u", 5e-6), (b"9n", 9e-9)],
)
def test_a_timeout_has_a_number_and_a_unit(text: bytes, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"5", b"S", b"-1S", b"123456789S", b"1.5S", b"1 S", b"1s"])
def test_other_texts_are_no_timeout(text: bytes) -> None:
    with pytest.raises(ValueError, match="grpc-timeout"):
        seconds_of(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=MESSAGE_CHARS_MAX))
def test_a_message_is_read_as_it_was_written(message: str) -> None:
    found = encoded(message)
    assert found.isascii()
    assert unquote(found.decode()) == message
