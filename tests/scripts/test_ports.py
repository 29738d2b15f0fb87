"""Free ports: nobody else gets them, and a server can listen there."""

import errno
import socket
import sys

import pytest
from aerobee.harness.java_side import HELD_PORTS_MAX, free_broker_port, free_ports

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="nobody holds the ports elsewhere")


@ONLY_LINUX
def test_who_looks_for_a_free_port_does_not_get_one_that_waits_for_its_server() -> None:
    port = free_broker_port()
    for each in (port, port - 2, port + 1):
        with socket.socket() as other, pytest.raises(OSError, match="in use") as refused:
            other.bind(("127.0.0.1", each))
        assert refused.value.errno == errno.EADDRINUSE


def test_a_server_gets_the_port_and_after_its_end_the_next() -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(server.getsockname()) as client,
        ):
            server.accept()[0].close()
            assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@ONLY_LINUX
def test_of_many_ports_the_first_are_let_go() -> None:
    first, *_ = free_ports(HELD_PORTS_MAX + 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
