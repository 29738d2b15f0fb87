"""The listening sockets of a broker in controller mode, which stay open while its role changes.

Each broker that is made in this process gets a duplicate of each socket. Between two brokers the
system lets clients connect, and the next broker serves them.
"""

import errno
import os
import socket

from ..settings.config import BrokerConfig

VIP_PORT_DISTANCE = 2  # the fast port is the listen port minus this


class Ports:
    """The sockets for clients, for fast sends and for slaves. OSError with a readable sentence when
    one is taken. On a port that is given nothing listens before a broker serves."""

    def __init__(self, config: BrokerConfig) -> None:
        self._open: list[socket.socket] = []
        try:
            host, port = config.bind_address, config.listen_port
            self.clients = self._bind(host, port, "listenPort")
            self.fast = self._bind(
                host, max(0, port - VIP_PORT_DISTANCE), "the port for fast sends"
            )
            self.slaves = self._bind(host, config.ha_listen_port, "haListenPort")
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The port for clients."""
        return int(self.clients.getsockname()[1])

    def close(self) -> None:
        """Close the sockets; the ports are free once the last broker has stopped."""
        for one in self._open:
            one.close()
        self._open.clear()

    def _bind(self, host: str, port: int, what: str) -> socket.socket:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # As with a name that has several addresses: one of them, and IPv4 where there is one.
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        made = socket.socket(family, kind, protocol)
        self._open.append(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)
        try:
            made.bind(address)
            if not port:  # else another could bind the same until one of them listens
                made.listen()
        except OSError as wrong:
            reason = wrong.strerror or str(wrong)
            if wrong.errno == errno.EADDRINUSE:
                reason = "another program listens there; stop it or choose another port"
            elif wrong.errno == errno.EADDRNOTAVAIL:
                reason = "the address is not one of this machine's; choose another"
            why = f"can't listen on {host}:{port} ({what}): {reason}"
            raise OSError(wrong.errno or os.EX_OSERR, why) from None
        return made
