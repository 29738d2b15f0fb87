"""Which addresses only this machine reaches."""

import pytest
from aerobee.protocol.addresses import is_loopback


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("mq.example", False),
        ("", False),
    ],
)
def test_loopback(address: str, is_local: bool) -> None:
    assert is_loopback(address) is is_local
