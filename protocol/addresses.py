"""Addresses that servers are bound to."""

import ipaddress


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to this address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
