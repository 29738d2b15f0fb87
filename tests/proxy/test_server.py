"""A proxy: starts, stops, says why it doesn't."""

import gc

import pytest
from aerobee.proxy.http2.library import StateMachine
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.testing import LocalCluster

from ..waiting import until
from .support import Setup, code_of, resource, setup


async def test_a_used_port_is_told(cluster: LocalCluster) -> None:
    async with setup(cluster) as proxied:
        config = ProxyConfig(namesrv_addr=cluster.name_server, grpc_server_port=proxied.proxy.port)
        with pytest.raises(OSError, match="another program listens there"):
            await Proxy(config).start()


async def test_without_a_name_server_a_call_says_so() -> None:
    with LocalCluster() as cluster:
        address = cluster.name_server
    config = ProxyConfig(namesrv_addr=address, grpc_server_port=0, grpc_shutdown_time_seconds=0)
    proxy = Proxy(config)
    await proxy.start()
    try:
        service = proxy.service
        with pytest.raises(Exception, match="no name server answered"):
            await service.topics.route("T")
    finally:
        await proxy.stop()


async def test_a_proxy_goes_on_after_a_restart_of_the_broker() -> None:
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            await proxied.create("Restarted", queues=1)
            client = proxied.client()
            assert code_of(await client.send("Restarted", "x")) == "OK"
            cluster.restart()

            async def goes_on() -> bool:
                return code_of(await client.send("Restarted", "x")) == "OK"

            await until(goes_on, "sends fail")
            route = await client.call("QueryRoute", topic=resource("Restarted"))
            assert code_of(route) == "OK"


async def test_calls_leave_nothing_behind(proxied: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the ended streams that a connection remembers, whose number is limited."""
    monkeypatch.setattr(StateMachine, "MAX_CLOSED_STREAMS", 50)
    await proxied.create("Forgotten")
    client = proxied.client()

    async def objects_after(calls: int) -> int:
        for _ in range(calls):
            assert code_of(await client.call("QueryRoute", topic=resource("Forgotten"))) == "OK"
        gc.collect()
        return len(gc.get_objects())

    before = await objects_after(500)
    assert await objects_after(1_000) - before < 500  # one object a call would be 1,000
