"""Identity of a client: local ip, client id, message ids; and the clocks."""

import os
import socket
import time

from ...protocol.message.message_id import PORT_BYTES, UniqueIds

OUTSIDE = ("192.0.2.1", 9)  # an address kept for documentation; nothing is ever sent to it
LOOPBACK = "127.0.0.1"
DEFAULT_INSTANCE = "DEFAULT"  # instanceName of broadcasting consumers; it survives a restart


def own_ip() -> str:
    """The ip that this machine uses towards other ones; 127.0.0.1 when it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(OUTSIDE)  # chooses an interface, sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK


class Machine:
    """A client's sources of address, process id and time, which a simulation replaces."""

    ip = staticmethod(own_ip)
    pid = staticmethod(os.getpid)
    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)


current = Machine()


def new_client_id(ip: str | None = None, instance: str | None = None) -> str:
    """A client id as Java makes one: ip@pid#ns, or ip@instance when the instance has a name. Texts
    have a timestamp there; it is System.nanoTime()."""
    return f"{ip or current.ip()}@{instance or f'{current.pid()}#{current.time_ns()}'}"


def new_unique_ids() -> UniqueIds:
    """A generator of UNIQ_KEYs for this ip, process and the wall clock."""
    host = socket.inet_aton(current.ip()) + bytes(PORT_BYTES)
    return UniqueIds(host, now_ms, current.pid())


def now_ms() -> int:
    """The wall clock, in ms since the epoch."""
    return current.time_ns() // 1_000_000


def monotonic() -> float:
    """A clock in seconds that only goes forward."""
    return current.monotonic()
