"""What brokers and visitors may send that is wrong: a mark or a refusal with its reason, and no
connection to an address that the name servers don't list."""

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest
from aerobee.console.web import request_context
from aerobee.console.web.streams import TAILS_MAX
from aerobee.protocol import codes
from aerobee.protocol.command import Response
from aerobee.protocol.message.message_id import offset_message_id

from ...waiting import LONG
from ..fake_cluster import Shop
from .site import Parsed, Site


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        (100 << 20).to_bytes(4, "big") + bytes(1_000),  # says that 100 MiB follow
        b"\x00\x00\x00\x08\xff\xff\xff\xff\x00\x00\x00\x00",
        b"",
    ],
    ids=["another protocol", "100 MiB", "no frame", "closes"],
)
async def test_a_broker_that_speaks_nonsense_is_a_mark_and_not_the_page(
    shop: Shop, answer: bytes
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    shop.broker.address = f"{host}:{port}"
    async with Site({"main": shop.address}) as site:
        for path in ("overview", "topics", "groups", "brokers", "producers"):
            text = Parsed(await site.html(path)).text
            assert f"{host}:{port}" in text, path
        (mark,) = (await site.data("overview"))["samples"]["marks"]
        assert mark["why"]
        assert (await site.data("overview"))["topics"] is None
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("body", [b"nonsense", b"[" * 100_000, b"\xff\xfe", b"null", b"[]"])
async def test_an_answer_that_is_nonsense_is_a_mark(shop: Shop, body: bytes) -> None:
    for code in (codes.GET_BROKER_RUNTIME_INFO, codes.GET_TOPIC_STATS_INFO):
        shop.broker.answers[code] = lambda *_: Response(body=body)
    async with Site({"main": shop.address}) as site:
        (mark,) = (await site.data("overview"))["samples"]["marks"]
        assert mark["name"] == "orders"
        assert "orders" in await site.html("brokers")


async def test_a_broker_that_is_slow_costs_a_page_its_part_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_context, "ASK_SECONDS", 0.1)
    shop.broker.answers[codes.GET_TOPIC_STATS_INFO] = lambda *_: None  # it never answers
    async with Site({"main": shop.address}) as site:
        found = await site.data("topic", name="orders")
        assert found["messages"] is None
        assert any("did not answer within 0.1 s" in one for one in found["faults"])


async def test_a_forged_id_connects_to_no_address_of_its_own(shop: Shop) -> None:
    visits: list[object] = []

    async def visited(_: object, writer: asyncio.StreamWriter) -> None:
        visits.append(writer)
        writer.close()

    server = await asyncio.start_server(visited, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    forged = offset_message_id(socket.inet_aton("127.0.0.1") + port.to_bytes(4, "big"), 0)
    async with Site({"main": shop.address}) as site:
        for path, name in (("messages", "key"), ("message", "id")):
            status, text, _ = await site.get(path, topic="orders", **{name: forged})
            assert status in (200, 404), text
    assert visits == []
    server.close()
    await server.wait_closed()


async def test_a_live_view_beyond_the_limit_is_refused_in_the_visitor_s_language(
    shop: Shop,
) -> None:
    shop.broker.answers[codes.PULL_MESSAGE] = lambda *_: None  # nothing comes
    async with Site({"main": shop.address}) as site, AsyncExitStack() as stack:
        url = f"{site.console.url}tail/events?topic=orders"
        for _ in range(TAILS_MAX):
            answer = await stack.enter_async_context(site.session.get(url))
            assert answer.status == 200
        status, text, _ = await site.get("tail/events", topic="orders")
        assert status == 429
        assert f"{TAILS_MAX} live views are open, the limit is {TAILS_MAX}; close one" in text
        chinese = {"Accept-Language": "zh-CN"}
        _, text, _ = await site.get("tail/events", topic="orders", headers=chinese)
        assert f"已打开 {TAILS_MAX} 个实时视图" in text


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("a = " + "(" * 2_000 + "1" + ")" * 2_000, ""),
        ("NOT " * 1_000 + "a", "it nests deeper than 64 operators"),
        ("a LIKE '" + "%_" * 1_000 + "'", "RocketMQ reads no further than to 'LIKE'"),
        ("x" * 5_000, "the limit is 4096"),
        ("body." + ".".join("a" * 1_000), ""),
    ],
)
async def test_an_expression_that_explodes_is_refused_or_answered_soon(
    shop: Shop, where: str, says: str
) -> None:
    async with Site({"main": shop.address}) as site, asyncio.timeout(LONG):
        status, text, _ = await site.get("api/search", topic="orders", where=where)
        assert (status == 400) is bool(says), text
        assert says in text
