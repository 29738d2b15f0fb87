"""Routes: fetched once, cached, borrowed for topics that don't exist yet, and limited in number."""

import asyncio

import pytest
from aerobee.client.cluster import routes as module
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.errors import ClientError, NoAnswerError, NoRouteError, UnreachableError
from aerobee.protocol import codes

from ..clock import Clock
from ..fakes import FakeBroker, FakeCluster


async def test_a_route_is_asked_once_by_many_and_kept(fake: FakeCluster) -> None:
    cluster = Cluster(fake.address)
    routes = await asyncio.gather(*(cluster.route("orders") for _ in range(20)))
    assert len(set(map(id, routes))) == 1
    await cluster.route("orders")
    assert len(fake.requests[codes.GET_ROUTEINFO_BY_TOPIC]) == 1
    await cluster.close()


async def test_a_refresh_learns_new_queues_and_keeps_a_route_that_is_gone(
    fake: FakeCluster,
) -> None:
    cluster = Cluster(fake.address)
    assert len((await cluster.route("orders")).subscribe) == 4
    fake.topics["orders"] = 6
    await cluster.refresh()
    assert len((await cluster.route("orders")).subscribe) == 6
    del fake.topics["orders"]
    await cluster.refresh()
    assert len((await cluster.route("orders")).subscribe) == 6
    await fake.stop()
    await cluster.refresh()
    assert len((await cluster.route("orders")).subscribe) == 6
    await cluster.close()


async def test_routes_are_refreshed_every_30_seconds_although_nothing_fails(
    fake: FakeCluster, clock: Clock
) -> None:
    asked = fake.requests[codes.GET_ROUTEINFO_BY_TOPIC]
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    cluster.start()
    await clock.advance(1)
    before = len(asked)
    fake.topics["orders"] = 6
    await clock.advance(25)
    assert len(asked) == before
    await clock.advance(5)
    assert len(asked) == before + 1
    assert len((await cluster.route("orders")).publish) == 6
    assert not fake.broker.order  # no request to a broker had an effect on that
    await cluster.close()


async def test_a_borrowed_route_gives_way_once_the_topic_is_there(fake: FakeCluster) -> None:
    fake.topics["TBW102"] = 8
    cluster = Cluster(fake.address)
    assert len((await cluster.publish_route("new")).publish) == 4
    with pytest.raises(NoRouteError):
        await cluster.route("new")  # nothing to be read there yet
    fake.topics["new"] = 2
    await cluster.refresh()
    assert len((await cluster.publish_route("new")).publish) == 2
    await cluster.close()


async def test_the_topics_of_a_client_are_limited_also_those_that_do_not_exist_yet(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    fake.topics |= {"TBW102": 8, "more": 1}
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    await cluster.publish_route("new")
    for ask, topic in ((cluster.route, "more"), (cluster.publish_route, "newer")):
        with pytest.raises(ClientError, match=f"topic {topic}.*uses 2 topics, the limit is 2"):
            await ask(topic)
    fake.topics["new"] = 1
    await cluster.refresh()
    assert len((await cluster.route("new")).publish) == 1
    await cluster.close()


async def test_a_failing_broker_has_the_routes_that_lead_to_it_asked_again_but_not_too_often(
    fake: FakeCluster, clock: Clock
) -> None:
    fake.topics["other"] = 1
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    await cluster.route("other")
    asked = fake.requests[codes.GET_ROUTEINFO_BY_TOPIC]
    await fake.broker.stop()
    for expected in (4, 4, 6):
        with pytest.raises(UnreachableError):
            await cluster.request(fake.broker.address, codes.GET_MAX_OFFSET)
        await clock.advance(0.3, 0.1)
        assert len(asked) == expected
    await cluster.close()


async def test_a_request_to_a_silent_broker_ends_once_another_one_is_the_master(
    fake: FakeCluster, clock: Clock
) -> None:
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    old, new = fake.broker, FakeBroker(fake.broker.name)
    old.answers[codes.PULL_MESSAGE] = lambda *_: None
    pull = asyncio.ensure_future(cluster.request(old.address, codes.PULL_MESSAGE, timeout_s=60))
    ask = asyncio.ensure_future(cluster.request(old.address, codes.PULL_MESSAGE, timeout_s=3))
    await clock.advance(4)
    with pytest.raises(NoAnswerError):
        await ask
    assert not pull.done()
    await new.start()
    fake.brokers = [new]
    await clock.advance(1)
    with pytest.raises(UnreachableError, match="closed"):
        await pull
    await cluster.close()
    await old.stop()
