"""The table of served requests for docs/requests.md, made from the request tables themselves."""

import asyncio
import inspect
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..broker.server import Broker
from ..broker.settings.config import load_broker
from ..broker.table import full_table
from ..namesrv.config import NamesrvConfig
from ..namesrv.handlers import Handlers
from ..namesrv.routes import RouteTable
from ..namesrv.settings import Settings
from ..protocol import codes
from ..protocol.aio.connection import Row
from ..protocol.security.needs import Needs

ROOT = Path(__file__).resolve().parents[1]


class Served(NamedTuple):
    """One request: the daemon that serves it, and the place of its code."""

    daemon: str
    code: int
    name: str
    header: str
    access: str
    file: str
    function: str


def table() -> str:
    """Every request with the function that serves it, as a table in the order of the codes."""
    lines = ["| code | request | by | its code | header | access |"]
    lines.append("| ---: | --- | --- | --- | --- | --- |")
    for one in all_served():
        where = f"`{one.file}` `{one.function}`"
        lines.append(
            f"| {one.code} | {one.name} | {one.daemon} | {where} | {one.header} | {one.access} |"
        )
    return "\n".join(lines) + "\n"


def all_served() -> list[Served]:
    """Every request of both daemons, by code."""
    with tempfile.TemporaryDirectory(prefix="aerobee-served-") as folder:
        broker = asyncio.run(_broker_rows(Path(folder)))
    found = [_served("broker", row) for row in broker]
    found += [_served("name server", row) for row in _namesrv_rows()]
    return sorted(found, key=lambda one: (one.code, one.daemon))


def _served(daemon: str, row: Row) -> Served:
    code = inspect.unwrap(row.handler)
    path = inspect.getsourcefile(code)
    assert path is not None, f"{code} has no source file"
    header = "none"
    if row.header is not None:
        file = row.header.__module__.rpartition(".")[2]
        header = f"`{row.header.__name__}` ({file})"
    return Served(
        *(daemon, row.code, codes.REQUEST_NAMES[row.code], header, _asked(row.access)),
        *(str(Path(path).resolve().relative_to(ROOT)), code.__name__),
    )


def _asked(access: Needs) -> str:
    return f"{access}; RocketMQ: any user" if access.is_ours else str(access)


async def _broker_rows(folder: Path) -> list[Row]:
    settings = {
        "storePathRootDir": folder,
        "listenPort": 0,
        "httpPort": -1,
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20_000,
    }
    config, _ = load_broker(options=[f"{key}={value}" for key, value in settings.items()])
    broker = Broker(config)
    await broker.start()
    try:
        return list(full_table(broker).values())
    finally:
        await broker.stop()


def _namesrv_rows() -> list[Row]:
    handlers = Handlers(RouteTable(), Settings(None), NamesrvConfig(), lambda: 0, lambda _: None)
    return handlers.rows()
