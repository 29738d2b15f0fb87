"""`aerobee up --grpc` and `aerobee broker --enable-proxy`: a proxy that ends with them."""

import re
import socket
from pathlib import Path

import grpc
import pytest
from aerobee.harness.child import Child
from aerobee.proxy.messages import definitions

from ..waiting import PROCESS
from .command import AEROBEE, SMALL, Daemon, environment, refused, running, up


def port_of(daemon: Daemon) -> int:
    found = re.search(r"proxy 127\.0\.0\.1:(\d+)", daemon.ready)
    assert found is not None, daemon.ready
    return int(found[1])


def route_code(port: int) -> int:
    """The code of a route of a topic that isn't there, as a client gets it."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary(
            f"/{definitions.SERVICE}/QueryRoute",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=definitions.message("QueryRouteResponse").FromString,
        )
        request = definitions.message("QueryRouteRequest")()
        request.topic.name = "nowhere"
        answer = method(request, timeout=PROCESS, metadata=(("x-mq-client-id", "c"),))
        code: int = answer.status.code
        return code


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_up_starts_a_proxy_that_ends_with_it(tmp_path: Path) -> None:
    words = (*up(tmp_path / "store"), "--grpc", "0")
    with running(tmp_path, *words) as daemon:
        port = port_of(daemon)
        assert route_code(port) == 40402
    assert not is_open(port)


def test_a_broker_starts_one_with_a_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"rocketMQClusterName": "DefaultCluster", "grpcServerPort": 0}')
    with running(tmp_path, "namesrv", "--listen-port", "0") as names:
        found = re.search(r"ready on ([\d.:]+)", names.ready)
        assert found is not None
        folder = tmp_path / "broker"
        folder.mkdir()
        words = ("-n", found[1], "--enable-proxy", "-pc", str(file), *SMALL)
        ports = ("--set", "listenPort=0", "--set", f"storePathRootDir={folder}")
        argv = [*AEROBEE, "broker", *words, *ports]
        child = Child(argv, folder / "stderr", env=environment(), cwd=folder)
        daemon = Daemon(child, child.wait_line(lambda line: "ready" in line, PROCESS))
        port = port_of(daemon)
        assert route_code(port) == 40402
        child.kill()
        with pytest.raises(ConnectionError):
            wait_closed(port)  # it ends by itself


def wait_closed(port: int) -> None:
    """Connect until the port is closed; the refusal is raised."""
    while True:
        with socket.create_connection(("127.0.0.1", port), PROCESS) as connection:
            connection.settimeout(PROCESS)
            connection.recv(1)  # until it closes


def test_a_broker_without_a_name_server_can_have_none(tmp_path: Path) -> None:
    words = ("broker", "--enable-proxy", "--set", f"storePathRootDir={tmp_path}")
    assert "--enable-proxy needs a name server" in refused(*words, *SMALL)
