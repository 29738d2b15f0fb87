"""haAllowedAddresses: which hosts may take the log of a master in controller mode."""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ...conf.sources import ConfigError
from .store_host import is_address

Network = IPv4Network | IPv6Network


def networks_of(text: str) -> list[Network]:
    """The addresses and networks in the value of the key, with ; or , between them. ConfigError
    for any other text."""
    found = []
    for one in text.replace(",", ";").split(";"):
        if not one.strip():
            continue
        try:
            found.append(ip_network(one.strip()))
        except ValueError as wrong:
            raise ConfigError(
                f"haAllowedAddresses names {one!r} ({wrong}), but must be IP addresses or networks "
                "such as 10.0.0.0/24, with ; between them; correct it"
            ) from None
    return found


async def resolved(address: str) -> str:
    """Resolve the host of a "host:port" to an IP address; returns it unchanged when that is
    impossible."""
    host, _, port = address.rpartition(":")
    if not host or is_address(host.strip("[]")):
        return address
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return address
    return f"{found[0][4][0]}:{port}"


def is_allowed(host: str, networks: Iterable[Network], replicas: Iterable[str]) -> bool:
    """True if this address is loopback, in one of the networks, or that of a replica, each given as
    "host:port"."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or any(address in network for network in networks):
        return True
    known = {replica.rpartition(":")[0].strip("[]") for replica in replicas}
    return str(address) in known
