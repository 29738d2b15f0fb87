"""`aerobee doctor --grpc`: what is wrong with a proxy as its clients dial it."""

import ssl
from typing import Any

import pytest
from aerobee.client import Admin
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.scripts.commands.grpc_findings import Address, of_proxies, of_proxy
from aerobee.scripts.commands.route_of_proxy import ask
from aerobee.scripts.output.command_error import CommandError
from aerobee.testing import LocalCluster


async def found(cluster: LocalCluster, **settings: Any) -> list[str]:
    """What is found about a proxy with these settings; its port is written PORT."""
    proxy = Proxy(ProxyConfig(namesrv_addr=cluster.name_server, grpc_server_port=0, **settings))
    await proxy.start()
    try:
        async with Admin(cluster.name_server) as admin:
            await admin.create_topic("Dialled", 1, attributes={"message.type": "NORMAL"})
            findings = await of_proxies(admin, [f"127.0.0.1:{proxy.port}"])
    finally:
        await proxy.stop()
    return [str(each).replace(str(proxy.port), "PORT") for each in findings]


async def test_a_proxy_that_serves_everybody_has_no_findings() -> None:
    with LocalCluster() as cluster:
        assert await found(cluster) == []
        (one,) = await found(cluster, tls_server_mode="disabled")
        assert "proxy 127.0.0.1:PORT: no TLS: " in one
        assert "clients of Java, Go, C++ and C# begin with TLS" in one
        (one,) = await found(cluster, tls_server_mode="enforcing")
        assert "TLS only, with a certificate that clients of Python, Node.js and Rust" in one


async def test_an_endpoint_that_nobody_reaches_is_found() -> None:
    async def nowhere(
        address: Address, topic: str, tls: ssl.SSLContext | None
    ) -> tuple[str | None, list[Address]]:
        return None, [address, ("127.0.0.1", 1)]

    with LocalCluster() as cluster:
        proxy = Proxy(ProxyConfig(namesrv_addr=cluster.name_server, grpc_server_port=0))
        await proxy.start()
        try:
            (one,) = await of_proxy(("127.0.0.1", proxy.port), "T", nowhere)
        finally:
            await proxy.stop()
    assert "it tells clients to go to 127.0.0.1:1, where there is no connection" in str(one)


async def test_a_port_without_a_proxy_is_found() -> None:
    (one,) = await of_proxy(("127.0.0.1", 1), "T", ask)
    assert "proxy 127.0.0.1:1: no connection: " in str(one)
    with LocalCluster() as cluster:
        host, _, port = cluster.name_server.rpartition(":")
        (one,) = await of_proxy((host, int(port)), "T", ask)
        assert "it does not answer: " in str(one)
        async with Admin(cluster.name_server) as admin:
            with pytest.raises(CommandError, match="--grpc is 'here'; give HOST:PORT"):
                await of_proxies(admin, ["here"])
