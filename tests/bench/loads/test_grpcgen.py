"""The load for proxies of gRPC."""

import asyncio

import pytest
from aerobee.bench.loads import grpcgen
from aerobee.bench.loads.loadgen import LoadFailed
from aerobee.bench.proxies import TOPIC, send_request
from aerobee.testing import LocalCluster

from ...proxy.support import new, setup


async def test_each_request_has_its_answer() -> None:
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            await proxied.create(TOPIC)
            request = send_request().SerializeToString()
            found = await grpcgen.exchange(proxied.proxy.port, "SendMessage", [request] * 5, 2)
            answers = [new("SendMessageResponse").FromString(raw) for (raw,) in found]
            assert [answer.status.code for answer in answers] == [20_000] * 5


async def test_idle_clients_are_known_with_their_settings_until_they_leave() -> None:
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            clients = proxied.proxy.service.clients
            async with grpcgen.idle(proxied.proxy.port, 3):
                known = {one.client_id: one.group for one in clients}
                assert known == dict.fromkeys(("idle-0", "idle-1", "idle-2"), "idle")
            while any(one.streams for one in clients):  # noqa: ASYNC110 - no event for tests
                await asyncio.sleep(0)


def test_without_h2load_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LoadFailed, match="apt-get install nghttp2-client"):
        grpcgen.h2load(1, "X", b"", 1, 1, 1)
