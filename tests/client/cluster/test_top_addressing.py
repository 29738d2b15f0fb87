"""Name server addresses from a web page: read before the first request and every two minutes."""

import logging
from collections.abc import AsyncIterator

import pytest
from aerobee.client import Message, Producer
from aerobee.client.cluster import top_addressing as top_addressing_module
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.cluster.name_servers import read_source
from aerobee.client.errors import ClientError, UnreachableError
from aiohttp import web

from ..clock import Clock
from ..fakes import FakeCluster, until


class Page:
    """Responds to each request with `status` and `text`; `paths` lists the requested paths."""

    def __init__(self) -> None:
        self.status, self.text = 200, ""
        self.paths: list[str] = []
        self.address = ""

    async def respond(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        return web.Response(status=self.status, text=self.text)


@pytest.fixture
async def page(fake: FakeCluster) -> AsyncIterator[Page]:
    """A page with the address of the fake name server."""
    found = Page()
    found.text = fake.address + "\n"
    application = web.Application()
    application.router.add_get("/{path:.*}", found.respond)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, port = runner.addresses[0][:2]
    found.address = f"127.0.0.1:{port}"
    yield found
    await runner.cleanup()


def url(page: Page) -> str:
    return f"http://{page.address}/rocketmq/nsaddr"


async def test_without_an_address_the_domain_of_the_environment_is_used(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", page.address)
    async with Producer() as producer:
        await producer.send(Message("orders", b"x"))
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", "nsaddr-blue")
    async with Producer() as producer:
        await producer.send(Message("orders", b"x"))
    assert page.paths == ["/rocketmq/nsaddr", "/rocketmq/nsaddr-blue"]


@pytest.mark.parametrize(
    ("variables", "source"),
    [
        ({"ROCKETMQ_NAMESRV_DOMAIN": "jmenv.example"}, "http://jmenv.example:8080/rocketmq/nsaddr"),
        ({"ROCKETMQ_NAMESRV_DOMAIN": "h:1"}, "http://h:1/rocketmq/nsaddr"),
        ({"ROCKETMQ_NAMESRV_DOMAIN": "h", "NAMESRV_ADDR": "a:1"}, ("a:1",)),
        ({}, ("127.0.0.1:9876",)),
    ],
)
def test_an_address_overrides_a_domain_which_overrides_the_loopback(
    variables: dict[str, str], source: str | tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read_source(None) == source
    assert read_source("b:2") == ("b:2",)
    assert read_source("https://h/servers") == "https://h/servers"


async def test_the_page_is_read_again_after_10_seconds_and_then_every_two_minutes(
    page: Page, fake: FakeCluster, clock: Clock
) -> None:
    cluster = Cluster(url(page))

    def known() -> tuple[str, ...]:
        return cluster.name_servers.addresses

    cluster.start()
    await cluster.route("orders")
    began, other = clock.time(), "127.0.0.1:1"
    page.text = f"{fake.address};{other}"
    await clock.advance(9)
    assert known() == (fake.address,)
    await clock.advance(11.5 - (clock.time() - began))
    await until(lambda: known() == (fake.address, other))
    assert cluster.name_servers.current == fake.address  # the name server in use is kept
    page.text = other
    await clock.advance(125 - (clock.time() - began))
    assert known() == (fake.address, other)
    await clock.advance(135 - (clock.time() - began))
    await until(lambda: known() == (other,))
    await cluster.close()


async def test_a_page_that_fails_keeps_the_known_addresses(
    page: Page, fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(url(page))
    await cluster.name_servers.look_up()
    page.status = 503
    with caplog.at_level(logging.WARNING):
        await cluster.name_servers.look_up()
    assert cluster.name_servers.addresses == (fake.address,)
    assert f"keeping name servers {fake.address}" in caplog.text
    assert "it answered 503" in caplog.text
    await cluster.close()


@pytest.mark.parametrize(
    ("status", "text", "why"),
    [
        (404, "", "it answered 404"),
        (302, "", "it answered 302"),
        (200, " \n", "its page is empty"),
        (200, "a:1;" * 5_000, "longer than 16384 bytes"),
    ],
)
async def test_a_page_without_addresses_gives_its_url_and_a_remedy(
    page: Page, status: int, text: str, why: str
) -> None:
    page.status, page.text = status, text
    cluster = Cluster(url(page))
    with pytest.raises(UnreachableError, match=why) as raised:
        await cluster.route("orders")
    for part in (url(page), "host:port;host:port", "give addresses"):
        assert part in str(raised.value)
    await cluster.close()


async def test_a_malformed_page_is_refused_with_the_format_of_an_address(page: Page) -> None:
    page.text = "here:nothing"
    cluster = Cluster(url(page))
    with pytest.raises(ClientError, match="give host:port") as raised:
        await cluster.route("orders")
    assert "here:nothing" in str(raised.value)
    await cluster.close()


async def test_an_unreachable_page_or_one_that_times_out_is_an_error(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1/x"):
        await top_addressing_module.fetch("http://127.0.0.1:1/x")
    monkeypatch.setattr(top_addressing_module, "SECONDS", 1e-6)
    with pytest.raises(UnreachableError, match="no answer within 1e-06 s"):
        await top_addressing_module.fetch(url(page))
