"""Addresses of the loopback."""

import pytest
from aerobee.console.web.policy import is_loopback


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(address: str, is_local: bool) -> None:
    assert is_loopback(address) is is_local
