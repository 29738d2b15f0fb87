"""The HTTP endpoint over a socket, with a daemon made of functions behind it."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from importlib.metadata import version
from typing import Any

import aiohttp
import pytest
from aerobee.console.endpoint import OFF, PORT_DISTANCE, DaemonView, Endpoint
from aerobee.console.exposition import SAMPLES_PER_STEP, Family
from aerobee.harness.java_side import free_ports
from prometheus_client.parser import text_string_to_metric_families

from ..waiting import PROCESS, until


class Daemon:
    """The daemon behind the endpoint; a test changes it."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.not_ready: str | None = None
        self.families: list[Family] = []
        self.note: str | None = None
        self.written = 0  # how often the metrics were written
        self.steps = 0  # generator steps of these writes
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    def answers(self) -> DaemonView:
        return DaemonView(
            fault=lambda: self.fault,
            not_ready=lambda: self.not_ready,
            metrics=lambda: self.families,
            in_slices=self.in_slices,
            status=self.status,
            note=lambda: self.note,
        )

    def status(self, with_system: bool) -> Generator[None, None, dict[str, object]]:
        yield
        return {"port": 7, "topics": ["orders", "SYSTEM"] if with_system else ["orders"]}

    async def in_slices(self, steps: Generator[object, None, Any]) -> Any:
        self.written += 1
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value
            self.steps += 1
            self.has_begun.set()
            await self.may_go_on.wait()


Get = Callable[[str], "aiohttp.client._RequestContextManager"]


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
async def get(daemon: Daemon) -> AsyncIterator[Get]:
    """Sends GET requests to a running endpoint."""
    endpoint = Endpoint("127.0.0.1", 0, daemon.answers())
    await endpoint.start()
    assert endpoint.url is not None
    async with aiohttp.ClientSession(endpoint.url) as session:
        yield session.get
    await endpoint.stop()


async def test_a_healthy_daemon_responds_ok(get: Get) -> None:
    for path in ("/healthz", "/readyz"):
        async with get(path) as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_a_daemon_that_is_not_ready_is_still_healthy(get: Get, daemon: Daemon) -> None:
    daemon.not_ready = "no name server has taken the registration"
    async with get("/healthz") as answer:
        assert answer.status == 200
    async with get("/readyz") as answer:
        assert answer.status == 503
        assert daemon.not_ready in await answer.text()


async def test_every_page_names_a_fault(get: Get, daemon: Daemon) -> None:
    daemon.fault = "the disk has failed"
    for path in ("/healthz", "/readyz"):
        async with get(path) as answer:
            assert (answer.status, await answer.text()) == (503, "the disk has failed\n")
    async with get("/status") as answer:
        assert (await answer.json())["fault"] == "the disk has failed"


async def test_a_remark_leaves_a_healthy_daemon_healthy(get: Get, daemon: Daemon) -> None:
    daemon.note = "reading only"
    for path in ("/healthz", "/readyz"):
        async with get(path) as answer:
            assert (answer.status, await answer.text()) == (200, "ok; reading only\n")
    async with get("/status") as answer:
        assert (await answer.json())["note"] == "reading only"
    daemon.fault = "the disk has failed"
    async with get("/healthz") as answer:
        assert (answer.status, await answer.text()) == (503, "the disk has failed\n")


async def test_the_status_has_version_fault_note_and_what_the_daemon_tells(get: Get) -> None:
    told = {"version": version("aerobee"), "fault": None, "note": None, "console": None, "port": 7}
    for path, topics in (("/status", ["orders"]), ("/status?system=1", ["orders", "SYSTEM"])):
        async with get(path) as answer:
            assert answer.content_type == "application/json"
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert await answer.json() == {**told, "topics": topics}


async def test_metrics_have_the_prometheus_text_format(get: Get, daemon: Daemon) -> None:
    daemon.families = [
        ("rocketmq_messages_in_total", "counter", "In", ("topic",), [(("a",), 3), (("b",), 4)]),
        ("rocketmq_topic_number", "gauge", "Topics", (), [((), 2)]),
    ]
    async with get("/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await answer.text()
    found = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert found == [
        ("rocketmq_messages_in_total", {"topic": "a"}, 3.0),
        ("rocketmq_messages_in_total", {"topic": "b"}, 4.0),
        ("rocketmq_topic_number", {}, 2.0),
    ]


async def test_concurrent_scrapes_share_one_result_and_later_scrapes_are_fresh(
    get: Get, daemon: Daemon
) -> None:
    async def asked() -> str:
        async with get("/metrics") as answer:
            return await answer.text()

    values = [((str(number),), number) for number in range(100)]
    daemon.families = [("rocketmq_topic_number", "gauge", "Topics", ("a",), values)]
    daemon.may_go_on.clear()
    first, second = asyncio.create_task(asked()), asyncio.create_task(asked())
    await daemon.has_begun.wait()
    first.cancel()  # cancelling the first scrape does not cancel the second
    async with get("/healthz") as answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", answer.url.port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    async with get("/healthz"):  # the endpoint has read the requests before this one
        pass
    daemon.families = []
    daemon.may_go_on.set()
    assert "rocketmq_topic_number" in await second
    third = await reader.read()
    assert third.endswith((await second).encode())
    writer.close()
    await writer.wait_closed()
    assert daemon.steps > 100 // SAMPLES_PER_STEP  # the metrics were written in several steps

    async def is_fresh() -> bool:  # the result is cached for a moment
        return not await asked()

    await until(is_fresh, "the old figures are shown")


async def test_the_root_names_the_paths(get: Get) -> None:
    async with get("/") as answer:
        assert answer.content_type == "text/plain"
        assert await answer.text() == "aerobee; see /status, /metrics, /healthz and /readyz\n"


async def test_a_port_in_use_is_reported_in_one_sentence(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        endpoint = Endpoint("127.0.0.1", port, daemon.answers())
        with pytest.raises(OSError, match=f"can't serve HTTP on 127.0.0.1:{port}: .*httpPort"):
            await endpoint.start()


async def test_without_a_configured_port_the_endpoint_takes_the_next_free_one(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        endpoint = Endpoint("127.0.0.1", None, daemon.answers(), listen_port=port - PORT_DISTANCE)
        await endpoint.start()
        assert endpoint.port > port
        assert endpoint.url == f"http://127.0.0.1:{endpoint.port}/"
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{endpoint.url}healthz") as answer,
        ):
            assert answer.status == 200
        assert f"port {port} is taken, so HTTP is on port {endpoint.port}" in caplog.text
        await endpoint.stop()


async def test_without_a_configured_port_the_endpoint_is_near_the_listen_port_or_anywhere(
    daemon: Daemon,
) -> None:
    (port,) = free_ports(1)
    for listen_port in (port - PORT_DISTANCE, 0, 65_530):
        endpoint = Endpoint("127.0.0.1", None, daemon.answers(), listen_port=listen_port)
        await endpoint.start()
        assert endpoint.port > 0
        if listen_port == port - PORT_DISTANCE:
            assert endpoint.port == port
        await endpoint.stop()


async def test_a_disabled_endpoint_has_no_address(daemon: Daemon) -> None:
    endpoint = Endpoint("127.0.0.1", OFF, daemon.answers())
    await endpoint.start()
    assert endpoint.url is None
    await endpoint.stop()


async def test_visitors_who_come_at_once_wait_for_the_pages(daemon: Daemon) -> None:
    endpoint = Endpoint("127.0.0.1", 0, daemon.answers())
    await endpoint.start()
    async with aiohttp.ClientSession(endpoint.url) as session:

        async def status() -> int:
            async with session.get("/healthz") as answer:
                return answer.status

        assert await asyncio.gather(*(status() for _ in range(8))) == [200] * 8
    await endpoint.stop()


async def test_a_port_without_visitors_is_free_after_the_stop(daemon: Daemon) -> None:
    endpoint = Endpoint("127.0.0.1", 0, daemon.answers())
    await endpoint.start()
    await endpoint.stop()
    again = Endpoint("127.0.0.1", endpoint.port, daemon.answers())
    await again.start()
    assert again.port == endpoint.port
    _, writer = await asyncio.open_connection("127.0.0.1", again.port)  # not served yet
    await again.stop()
    writer.close()
    with socket.create_server(("127.0.0.1", endpoint.port)):
        pass


IMPORTS_LATE = """
import asyncio, sys
from aerobee.console.endpoint import DaemonView, Endpoint

view = DaemonView(lambda: None, lambda: None, list, None, None)

async def main():
    endpoint = Endpoint("127.0.0.1", 0, view)
    await endpoint.start()
    print("aiohttp" in sys.modules)
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    writer.write(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
    print((await reader.readline()).decode().split()[1], "aiohttp" in sys.modules)
    writer.close()
    await endpoint.stop()

asyncio.run(main())
"""


def test_aiohttp_is_imported_for_the_first_visitor() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_LATE], capture_output=True, text=True, timeout=PROCESS
    )
    assert done.stdout.split() == ["False", "200", "True"], done.stderr
