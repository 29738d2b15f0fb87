"""The HTTP endpoint of each daemon names the console that its settings name."""

from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from aerobee.conf.load import load
from aerobee.conf.sources import ConfigError
from aerobee.console.endpoint import Endpoint
from aerobee.controller import overview as of_controller
from aerobee.controller.server import Controller
from aerobee.namesrv import overview as of_name_server
from aerobee.namesrv.server import NameServer
from aerobee.protocol.aio.slices import step_per_tick
from aerobee.proxy import overview as of_proxy
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.scripts.commands.controller import ControllerSettings
from aerobee.scripts.commands.daemons import NAMESRV_KEYS, NamesrvSettings
from aerobee.scripts.endpoints import endpoint_of
from aerobee.scripts.serving import Part

URL = "https://mq.example/console?a&b"

Made = tuple[Part, Callable[[], Endpoint]]


def name_server(folder: Path, url: str) -> Made:
    settings = NamesrvSettings(
        kv_config_path=str(folder / "kv.json"), listen_port=0, http_port=0, console_url=url
    )
    daemon = NameServer(settings)
    return daemon, lambda: endpoint_of(daemon, of_name_server, settings, daemon.slices.run, 0)


def controller(folder: Path, url: str) -> Made:
    settings = ControllerSettings(
        controller_store_path=str(folder / "controller"),
        listen_port=0,
        http_port=0,
        console_url=url,
    )
    daemon = Controller(settings)
    return daemon, lambda: endpoint_of(daemon, of_controller, settings, daemon.slices.run, 0)


def proxy(_: Path, url: str) -> Made:
    settings = ProxyConfig(
        namesrv_addr="127.0.0.1:1", grpc_server_port=0, http_port=0, console_url=url
    )
    daemon = Proxy(settings)
    return daemon, lambda: endpoint_of(daemon, of_proxy, settings, step_per_tick, 0)


@pytest.mark.parametrize("daemon", [name_server, controller, proxy])
async def test_the_endpoint_names_the_console_where_one_is_known(
    daemon: Callable[[Path, str], Made], tmp_path: Path
) -> None:
    for url, named in ((URL, f"console: {URL}\n"), ("", "")):
        served, endpoint_of_it = daemon(tmp_path, url)
        await served.start()
        endpoint = endpoint_of_it()
        await endpoint.start()
        assert endpoint.url is not None
        async with aiohttp.ClientSession() as session:
            async with session.get(endpoint.url) as answer:
                text = await answer.text()
            async with session.get(endpoint.url, headers={"Accept": "text/html"}) as answer:
                assert answer.content_type == "text/html"
                page = await answer.text()
            async with session.get(f"{endpoint.url}status") as answer:
                assert (await answer.json())["console"] == (url or None)
        await endpoint.stop()
        await served.stop()
        assert text == f"aerobee; see /status, /metrics, /healthz and /readyz\n{named}"
        assert ('<a href="https://mq.example/console?a&amp;b">' in page) == bool(url)
        assert '<a href="/status">' in page


@pytest.mark.parametrize("url", ["javascript:alert(1)", "/console", "https://a b", "http://"])
def test_an_address_that_is_no_console_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="consoleUrl"):
        load(NAMESRV_KEYS, options=[f"consoleUrl={url}"])
