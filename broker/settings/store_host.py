"""The host that each message is stored with: four or sixteen bytes of address, then the port.

`brokerIP1` may be a host name, as in RocketMQ: clients and name servers get the name, and each
resolves it for itself. A record and its id have room for an address only, so the name is resolved
here, once, at the start. Of several addresses it is the first of IPv4, as in Java.
"""

import asyncio
import ipaddress
import re
import socket

from ...protocol.aio.connection import host_bytes

HOST_NAME_CHARS_MAX = 253
# Names on the internet have no underscores, but those of containers do.
_LABEL = r"[a-zA-Z0-9_](?:[a-zA-Z0-9_-]{0,62})"
_HOST_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")


def is_address(text: str) -> bool:
    """True if this is an IP address, of either version."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def may_be_host(text: str) -> bool:
    """True if this is an IP address or could be the name of a host."""
    is_name = len(text) <= HOST_NAME_CHARS_MAX and _HOST_NAME.fullmatch(text) is not None
    return is_name or is_address(text)


async def store_host(broker_ip1: str, port: int) -> bytes:
    """The store host of records, 8 or 20 bytes. OSError when the name has no address."""
    if is_address(broker_ip1):
        return host_bytes((broker_ip1, port))
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(broker_ip1, port, type=socket.SOCK_STREAM)
    except OSError as wrong:
        raise OSError(
            f"brokerIP1 is {broker_ip1!r}, which this machine can't resolve to the IP address that "
            f"each message is stored with ({wrong.strerror}); correct the name, make it known "
            "here, or write the address"
        ) from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)  # stable: the first of its family
    return host_bytes((str(found[0][4][0]), port))
