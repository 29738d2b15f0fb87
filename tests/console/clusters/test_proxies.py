"""Members behind RocketMQ's proxies, which no broker knows: the proxies are asked."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aerobee.client.errors import UnreachableError
from aerobee.console.clusters.proxies import SYNCER_GROUP, Proxies, hosts_of
from aerobee.console.clusters.samples import Behind, BrokerSample, TimedGroup, group_row
from aerobee.protocol import codes
from aerobee.protocol.bodies.clients import Connection, ConsumerConnection
from aerobee.protocol.bodies.subscription import SubscriptionData
from aerobee.protocol.bodies.summaries import GroupSummary

from ...client.fakes import FakeServer, until
from ..fake_cluster import Shop, by_group
from ..web.site import Parsed, Site

NAME = "shop"
BEHIND = Connection("grpc-1", "10.0.0.9:1234", "GO", 5)


class Proxied(Shop):
    """A broker that has no members of its own group, and a proxy that has one."""

    def __init__(self, *, is_java: bool) -> None:
        super().__init__(NAME, is_java=is_java)
        self.proxy = FakeServer()
        wanted = {NAME: SubscriptionData(NAME, "behind")}
        online = ConsumerConnection([BEHIND], wanted, "CONSUME_PASSIVELY", "CLUSTERING")
        self.proxy.answers[codes.GET_CONSUMER_CONNECTION_LIST] = by_group({NAME: online})
        self.sees("127.0.0.1:50123")

    def sees(self, *proxies: str, members: tuple[Connection, ...] = ()) -> None:
        """The broker has these proxies' connections, and these members."""
        syncers = [Connection(f"P{at}", at, "JAVA", 3) for at in proxies]
        found = {SYNCER_GROUP: ConsumerConnection(syncers)}
        if members:
            found[NAME] = ConsumerConnection(list(members))
        self.broker.answers[codes.GET_CONSUMER_CONNECTION_LIST] = by_group(found)

    @property
    def port(self) -> int:
        return int(self.proxy.address.partition(":")[2])

    def site(self) -> Site:
        return Site({"main": self.address}, proxy_port=self.port)

    async def start(self) -> None:
        await super().start()
        await self.proxy.start()

    async def stop(self) -> None:
        await super().stop()
        await self.proxy.stop()


@pytest.fixture
async def java() -> AsyncIterator[Proxied]:
    found = Proxied(is_java=True)
    await found.start()
    yield found
    await found.stop()


def row_of(site: Site) -> Callable[[], object]:
    """What the list shows of the group."""
    collector = site.console.clusters.by_name["main"].collector

    def told() -> object:
        row = collector.groups()[NAME]
        return row.members, row.members_at_least

    return told


async def test_members_that_only_a_proxy_knows_are_on_the_page_of_the_group(java: Proxied) -> None:
    own = Connection("own", "127.0.0.1:1", "JAVA", 3)
    java.sees("127.0.0.1:50123", members=(own,))
    async with java.site() as site:
        found = await site.data("group", name=NAME)
        assert [(one["client"], one["behind_proxy"]) for one in found["members"]] == [
            ("grpc-1", True),
            ("own", False),
        ]
        assert not found["members_at_least"]
        page = Parsed(await site.html("group", name=NAME))
        assert "grpc-1 (behind a proxy)" in page.text
        links = [one["href"] or "" for tag, one in page.elements if tag == "a"]
        assert not any("client=grpc-1" in link for link in links)  # a proxy tells no stacks
        assert any("client=own" in link for link in links)


async def test_a_group_that_is_behind_a_proxy_only_reads_as_the_proxy_says(java: Proxied) -> None:
    async with java.site() as site:
        found = await site.data("group", name=NAME)
        assert [one["client"] for one in found["members"]] == ["grpc-1"]
        assert [one["sub_string"] for one in found["subscriptions"]] == ["behind"]
        assert found["group"]["consume_type"] == "CONSUME_PASSIVELY"


@pytest.mark.parametrize("is_java", [True, False])
async def test_the_list_counts_members_behind_proxies(is_java: bool) -> None:
    cluster = Proxied(is_java=is_java)
    await cluster.start()
    try:
        async with cluster.site() as site:
            own = 0 if is_java else 1  # that the broker's own summary tells
            told = row_of(site)
            await until(lambda: told() == (own + 1, False))
    finally:
        await cluster.stop()


async def test_a_proxy_that_does_not_answer_makes_it_at_least(java: Proxied) -> None:
    own = Connection("own", "127.0.0.1:1", "JAVA", 3)
    java.sees("127.0.0.1:50123", "127.0.0.2:50124", members=(own,))
    async with java.site() as site:
        told = row_of(site)
        await until(lambda: told() == (2, True))
        assert "at least 2" in Parsed(await site.html("groups")).text
        found = await site.data("group", name=NAME)
        assert (len(found["members"]), found["members_at_least"]) == (2, True)
        (fault,) = found["faults"]
        assert f"proxy 127.0.0.2:{java.port} does not tell its clients" in fault
        assert "At least these" in Parsed(await site.html("group", name=NAME)).text


async def test_no_member_is_not_known_while_the_only_proxy_is_away(java: Proxied) -> None:
    async with java.site() as site:
        await java.proxy.stop()
        page = Parsed(await site.html("group", name=NAME)).text
        assert "No member is online." not in page


async def test_a_broker_that_does_not_tell_its_proxies_leaves_members_unknown(
    java: Proxied,
) -> None:
    del java.broker.answers[codes.GET_CONSUMER_CONNECTION_LIST]
    async with java.site() as site:
        found = await site.data("group", name=NAME)
        assert found["members_at_least"]
        assert any("no broker tells which proxies are there" in one for one in found["faults"])


async def test_producers_behind_a_proxy_are_said_to_be_missing(java: Proxied) -> None:
    async with java.site() as site:
        page = " ".join(Parsed(await site.html("producers")).text.split())
        assert "the proxies at 127.0.0.1 tell none of their producers, so these are missing" in page
    java.sees()
    async with java.site() as site:
        assert (await site.data("producers"))["missing"] is None
    del java.broker.answers[codes.GET_CONSUMER_CONNECTION_LIST]
    async with java.site() as site:
        missing = (await site.data("producers"))["missing"]
        assert "no broker tells which proxies are there" in missing


async def test_proxies_are_not_asked_with_port_0(java: Proxied) -> None:
    async with Site({"main": java.address}, proxy_port=0) as site:
        found = await site.data("group", name=NAME)
        assert (found["members"], found["members_at_least"]) == ([], False)
    assert not java.proxy.requests


async def test_a_group_with_members_behind_a_proxy_is_not_deleted(java: Proxied) -> None:
    async with java.site() as site:
        status, text = await site.post("act/group-delete/preview", {"group": NAME})
        assert "group shop has 1 members behind proxies; stop them first" in text, status


async def test_samples_leave_a_silent_proxy_out_for_a_while_and_visitors_do_not() -> None:
    asked: list[str] = []
    clock = 0.0

    class Silent:
        async def members_at(self, address: str, group: str) -> None:
            asked.append(group)
            raise UnreachableError("no route")

    admin: Any = Silent()
    master = BrokerSample("c", "b", 0, "127.0.0.1:1", proxies=["10.0.0.1"])
    proxies = Proxies(lambda: [master], clock=lambda: clock)
    await proxies.sample(admin, "first")
    await proxies.sample(admin, "second")
    assert asked == ["first"]
    assert proxies.behind()("second") == Behind(0, is_all=False)
    assert (await proxies.members(admin, "seen")).faults
    assert asked == ["first", "seen"]
    clock += 61
    await proxies.sample(admin, "third")
    assert asked == ["first", "seen", "third"]
    assert proxies.in_turn(["new", "first", "third"], {"third"}) == ["third", "new", "first"]


def test_hosts_are_addresses_and_nothing_else() -> None:
    told = ["10.0.0.1:5", "10.0.0.1:6", "[::1]:7", "evil.example:8", "", "127.0.0.1", "<b>:9"]
    assert hosts_of([Connection("c", one) for one in told]) == ["10.0.0.1", "[::1]"]


def test_no_member_and_an_unknown_proxy_is_not_known() -> None:
    samples = [TimedGroup(1, GroupSummary("G", True, 0))]
    assert group_row("G", samples, Behind(0, is_all=False)).members is None
    row = group_row("G", samples, Behind(2, is_all=False))
    assert (row.members, row.members_at_least) == (2, True)
