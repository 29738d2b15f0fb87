"""The page Lake: tables of lakes that run, fail, are away, or are something else."""

import socket
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right
from aerobee.console.access.user_file import User
from aerobee.console.clusters import lakes
from aerobee.console.clusters.lakes import Lakes
from aerobee.console.endpoint import DaemonView, Endpoint
from aerobee.harness.java_side import free_ports
from aerobee.protocol.aio.slices import step_per_tick
from aiohttp import web

from ..fake_cluster import Shop
from .site import Parsed, Site

TOKEN = b"a-secret-of-the-lake"
PASSWORD = "correct horse"


def table(topic: str, **more: Any) -> dict[str, Any]:
    """A table in a lake's status."""
    totals = {"rows": 1_200, "files": 3, "bytes": 4_096, "dead_letters": 7, "gone": 0}
    return {
        "topic": topic,
        "table": f"rocketmq.{topic}",
        "lag_seconds": 8.2,
        "lag_messages": 11,
        "in_table": totals | {"snapshot": 5, "committed_ms": 1_700_000_000_000},
        "failure": "",
        "last_failure": "",
        "last_failure_ms": 0,
        "upkeep_failure": "",
        "last_upkeep_ms": 0,
        **more,
    }


@asynccontextmanager
async def running(*tables: dict[str, Any], token: bytes = b"", **more: Any) -> AsyncIterator[str]:
    """A daemon with this status, by its address."""

    def status(_: bool) -> Generator[None, None, Mapping[str, object]]:
        yield
        return {"daemon": "lake", "failure": "", "tables": list(tables), **more}

    view = DaemonView(lambda: None, lambda: None, lambda: (), step_per_tick, status)
    endpoint = Endpoint("127.0.0.1", 0, view, token=token)
    await endpoint.start()
    assert endpoint.url is not None
    yield endpoint.url.rstrip("/")
    await endpoint.stop()


def site_of(shop: Shop, *urls: str, token: bytes = b"", **more: Any) -> Site:
    return Site({"main": shop.address}, lakes={"main": Lakes(urls, token)}, **more)


async def test_a_table_that_fails_comes_first_with_what_it_says(shop: Shop) -> None:
    tables = (
        table("bills"),
        table("kept", upkeep_failure="no rights to delete"),
        table("orders", failure="<b>gone</b>", last_failure="<b>gone</b>", last_failure_ms=1),
    )
    async with running(*tables) as url, site_of(shop, url) as site:
        data = await site.data("lake")
        assert [row["topic"] for row in data["list"]["rows"]] == ["orders", "kept", "bills"]
        first = data["list"]["rows"][0]
        assert (first["rows"], first["files"], first["dead_letters"]) == (1_200, 3, 7)
        assert (first["lag_messages"], first["lag_seconds"], first["lake"]) == (11, 8.2, url)
        assert first["last_upkeep_ms"] is None
        assert data["faults"] == {}
        page = Parsed(await site.html("lake"))
        assert "<b>gone</b>" in page.text
        assert "upkeep: no rights to delete" in page.text
        assert [a["href"] for t, a in page.elements if t == "a" and "topic?" in (a["href"] or "")]
        by_lag = await site.data("lake", sort="-lag_messages", q="ord")
        assert [row["topic"] for row in by_lag["list"]["rows"]] == ["orders"]


async def test_a_lake_that_does_not_answer_costs_the_page_its_tables_only(shop: Shop) -> None:
    away = f"http://127.0.0.1:{free_ports(1)[0]}"
    async with running(table("orders")) as url, site_of(shop, away, url) as site:
        data = await site.data("lake")
        assert [row["topic"] for row in data["list"]["rows"]] == ["orders"]
        assert list(data["faults"]) == [away]
        assert f"the lake at {away}: Cannot connect" in Parsed(await site.html("lake")).text


async def test_a_lake_that_is_silent_is_given_up(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakes, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # nobody accepts its connections
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with site_of(shop, url) as site:
            faults = (await site.data("lake"))["faults"]
    assert faults == {url: f"the lake at {url}: no answer within 0.05 s"}


async def test_a_lake_that_finds_no_topics_says_why(shop: Shop) -> None:
    async with running(failure="no name server") as url, site_of(shop, url) as site:
        data = await site.data("lake")
        assert data["faults"] == {url: f"the lake at {url}: no name server"}


async def test_a_token_is_sent_and_its_absence_is_named(shop: Shop) -> None:
    async with running(table("orders"), token=TOKEN) as url:
        async with site_of(shop, url, token=TOKEN) as site:
            assert (await site.data("lake"))["list"]["total"] == 1
        async with site_of(shop, url) as site:
            data = await site.data("lake")
            assert (data["list"]["total"], list(data["faults"])) == (0, [url])
            assert data["faults"][url].endswith(
                "it asks for its httpToken; start the console with --lake-token"
            )


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b'{"daemon":"broker","tables":[]}', "its answer is no status of a lake"),
        (200, b'{"daemon":"lake","tables":[{"topic":1}]}', "its answer is no status of a lake"),
        (200, b"<html>", "its answer is no status of a lake"),
        (200, b" " * 2_000, "its status has more than 1,000 bytes"),
        (302, b"", "it answers with status 302 of HTTP"),
    ],
)
async def test_what_is_no_status_of_a_lake_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, why: str
) -> None:
    monkeypatch.setattr(lakes, "ANSWER_BYTES_MAX", 1_000)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_get("/status", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with site_of(shop, url) as site:
        faults = (await site.data("lake"))["faults"]
    await runner.cleanup()
    assert faults[url].startswith(f"the lake at {url}: {why}")


async def test_a_visitor_sees_the_tables_of_own_topics(shop: Shop) -> None:
    bob = User("bob", Right.VIEW, ("orders",), password=hash_password(PASSWORD))
    tables = (table("bills"), table("orders"))
    async with (
        running(*tables, failure="of bills") as url,
        site_of(shop, url, users=[bob], logs_in=False) as site,
    ):
        await site.log_in_as(site.session, "bob", PASSWORD)
        data = await site.data("lake")
        assert [row["topic"] for row in data["list"]["rows"]] == ["orders"]
        assert data["faults"] == {}
        assert "bills" not in await site.html("lake")


async def test_a_cluster_without_a_lake_says_how_to_get_one(shop: Shop) -> None:
    async with Site({"main": shop.address}) as site:
        assert "start the console with --lake and that address" in await site.html("lake")
        assert (await site.data("lake"))["lakes"] == []
