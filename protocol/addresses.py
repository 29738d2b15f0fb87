"""Addresses that servers are bound to, or that clients are told."""

import ipaddress


def is_loopback(address: str) -> bool:
    """True if only this machine can connect to this address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_nobodys(address: str) -> bool:
    """True if it is no address of one machine: 0.0.0.0, ::, of a group or of a whole network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found.is_unspecified or found.is_multicast or str(found) == "255.255.255.255"
