"""The token of an HTTP endpoint: asked for by metrics and status, not by the probes."""

from collections.abc import Generator

import aiohttp
import pytest
from aerobee.console.bearer import Bearer
from aerobee.console.endpoint import DaemonView, Endpoint
from aerobee.console.metrics_merge import fetched
from aerobee.console.metrics_port import MetricsPort
from aerobee.protocol.aio.slices import step_per_tick

TOKEN = b"0123456789abcdef"


def view() -> DaemonView:
    def status(with_system: bool) -> Generator[None, None, dict[str, object]]:
        yield
        return {}

    return DaemonView(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: [("up", "gauge", "1", (), [((), 1.0)])],
        in_slices=step_per_tick,
        status=status,
    )


async def status_of(url: str, path: str, given: str | None) -> int:
    headers = {} if given is None else {"Authorization": given}
    async with aiohttp.ClientSession(url) as session, session.get(path, headers=headers) as answer:
        if answer.status == 401:
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            text = await answer.text()
            assert "httpToken" in text
            assert TOKEN.decode() not in text
        return answer.status


async def test_metrics_and_status_need_the_token_and_the_probes_do_not() -> None:
    endpoint = Endpoint("127.0.0.1", 0, view(), token=TOKEN)
    await endpoint.start()
    try:
        url, right = endpoint.url or "", TOKEN.decode()
        for path in ("/healthz", "/readyz"):
            assert await status_of(url, path, None) == 200
        for path in ("/", "/status", "/metrics"):
            wrong = (None, "", "Bearer", f"Bearer {right}x", f"Bearer {right[:-1]}", right)
            for given in (*wrong, f"Basic {right}", "Bearer \u00e9" * 9):
                assert await status_of(url, path, given) == 401, (path, given)
            for given in (f"Bearer {right}", f"bearer  {right}"):
                assert await status_of(url, path, given) == 200, (path, given)
        assert "up" in (await fetched({"a": url}, TOKEN))["a"]
        assert await fetched({"a": url}) == {}
    finally:
        await endpoint.stop()


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/healthz", "/readyz"])
async def test_without_a_token_nothing_needs_one(path: str) -> None:
    endpoint = Endpoint("127.0.0.1", 0, view())
    await endpoint.start()
    try:
        assert await status_of(endpoint.url or "", path, None) == 200
        assert await status_of(endpoint.url or "", path, "Bearer other") == 200
    finally:
        await endpoint.stop()


async def test_a_port_with_metrics_alone_takes_the_same_check() -> None:
    async def write() -> list[bytes]:
        return [b"up 1\n"]

    port = MetricsPort("127.0.0.1", 0, write, setting="x", check=Bearer(TOKEN).check)
    await port.start()
    try:
        url = port.url.removesuffix("/metrics")
        assert await status_of(url, "/metrics", None) == 401
        assert await status_of(url, "/metrics", f"Bearer {TOKEN.decode()}") == 200
    finally:
        await port.stop()
