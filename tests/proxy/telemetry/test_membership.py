"""gRPC clients as members of their groups at the brokers, as mqadmin sees them."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from aerobee.broker.groups import client_handlers
from aerobee.client import Admin
from aerobee.proxy.telemetry import membership
from aerobee.proxy.telemetry.membership import OWN_ID
from aerobee.testing import LocalCluster

from ...clocks import Seconds
from ...waiting import until
from ..support import Client, Setup, code_of, setup
from .talking import consumer, producer, talk


async def consumers(proxied: Setup, group: str) -> list[tuple[str, str]]:
    """Ids and languages of a group's members."""
    async with Admin(proxied.cluster.name_server) as admin:
        found = await admin.consumer_connection(group)
    return (
        [] if found is None else [(each.client_id, each.language) for each in found.connection_set]
    )


async def producers(proxied: Setup, topic: str) -> list[str]:
    async with Admin(proxied.cluster.name_server) as admin:
        found = await admin.producer_connection(topic)
    return [] if found is None else [each.client_id for each in found.connection_set]


async def joined(proxied: Setup, settings: Any, client_id: str) -> tuple[Client, Any]:
    """A client whose settings the brokers know, and its stream."""
    client = proxied.client(client_id)
    stream = await talk(client, settings)
    await proxied.proxy.service.membership.refresh()
    return client, stream


async def test_consumers_are_seen_each_under_its_id(proxied: Setup) -> None:
    await proxied.create("Seen")
    for client_id in ("one", "two"):
        await joined(proxied, consumer("seers", "Seen"), client_id)
    assert sorted(await consumers(proxied, "seers")) == [("one", "PYTHON"), ("two", "PYTHON")]
    async with Admin(proxied.cluster.name_server) as admin:
        found = await admin.consumer_connection("seers")
    assert found is not None
    assert list(found.subscription_table) == ["Seen"]
    assert found.consume_type == "CONSUME_PASSIVELY"


async def test_producers_are_seen_in_the_group_of_their_topic(proxied: Setup) -> None:
    await proxied.create("Made")
    await joined(proxied, producer("Made"), "maker")
    assert await producers(proxied, "Made") == ["maker"]


async def test_who_leaves_is_seen_no_more(proxied: Setup) -> None:
    await proxied.create("Left")
    client, _ = await joined(proxied, consumer("leavers", "Left"), "leaver")
    assert await consumers(proxied, "leavers")
    assert code_of(await client.call("NotifyClientTermination")) == "OK"
    assert await consumers(proxied, "leavers") == []


async def test_a_consumer_that_becomes_a_producer_leaves_its_group(proxied: Setup) -> None:
    await proxied.create("Turned")
    client, _ = await joined(proxied, consumer("turners", "Turned"), "turner")
    await joined(proxied, producer("Turned"), client.client_id)
    assert await consumers(proxied, "turners") == []
    assert await producers(proxied, "Turned") == ["turner"]


async def test_a_new_connection_to_a_broker_has_all_of_them_again(
    proxied: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "REST_SECONDS", 0.0)
    await proxied.create("Again")
    await joined(proxied, consumer("agains", "Again"), "again")
    service = proxied.proxy.service
    address = proxied.cluster.brokers[0].address
    connection = service.brokers.cluster.connected(address)
    assert connection is not None
    connection.close()
    await until(lambda: connection.is_lost, "the connection is not lost")

    async def is_back() -> bool:
        await service.membership.refresh()
        return bool(await consumers(proxied, "agains"))

    await until(is_back, "the member is not back")
    assert await consumers(proxied, "agains") == [("again", "PYTHON")]


async def test_clients_that_come_together_are_not_due_together(
    proxied: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await proxied.create("Spread")
    for task in proxied.proxy._upkeep:  # it refreshes as well
        task.cancel()
    await asyncio.gather(*proxied.proxy._upkeep, return_exceptions=True)
    service, clock, period = proxied.proxy.service, Seconds(), membership.HEARTBEAT_SECONDS
    monkeypatch.setattr(service.membership, "_loop", SimpleNamespace(time=clock))
    parts = iter([0.0, 0.5])
    monkeypatch.setattr(random, "uniform", lambda low, high: high * next(parts))
    call: Any = SimpleNamespace(text=lambda name: "PYTHON", peer=("127.0.0.1", 1))
    clients = [
        service.clients.put(client_id, consumer("spreads", "Spread"), call)
        for client_id in ("at once", "half a period earlier")
    ]
    for client in clients:
        await service.membership.join(client)

    def due() -> list[str]:
        return [one.client_id for one in clients if service.membership._is_due(one)]

    assert due() == []
    clock.now += period / 2
    assert due() == ["half a period earlier"]
    await service.membership.refresh()
    clock.now += period / 2 - 0.1
    assert due() == []  # from now on each has the whole period
    clock.now += 0.1
    assert due() == ["at once"]
    for client in clients:
        service.clients.remove(client.client_id)


async def test_settings_that_come_again_don_t_make_a_client_due(proxied: Setup) -> None:
    await proxied.create("Same")
    client, _ = await joined(proxied, consumer("sames", "Same"), "same")
    service = proxied.proxy.service
    known = service.clients.get("same")
    assert known is not None
    before = known.settings
    await talk(client, consumer("sames", "Same"))
    assert known.settings is not before
    await service.membership.join(known)
    assert not service.membership._is_due(known)


async def test_a_broker_that_knows_one_client_a_connection_has_the_proxy_for_transactions(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_handlers, "PROXIED_HEARD", client_handlers.HEARD)
    async with setup(cluster) as proxied:
        await proxied.create("Paid", "TRANSACTION")
        await proxied.create("Common")
        await joined(proxied, producer("Paid", "Common"), "payer")
        await joined(proxied, consumer("readers", "Common"), "reader")
        assert await producers(proxied, "Paid") == [OWN_ID]
        assert await producers(proxied, "Common") == []
        assert await consumers(proxied, "readers") == []
        client = proxied.client("payer")
        assert code_of(await client.call("NotifyClientTermination")) == "OK"
        await proxied.proxy.service.membership.refresh()
        assert await producers(proxied, "Paid") == []
