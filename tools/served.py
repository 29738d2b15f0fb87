"""The table of served requests for docs/requests.md, made from the request tables themselves."""

import asyncio
import inspect
import tempfile
from pathlib import Path

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


def table() -> str:
    """Every request with the function that serves it, as a table in the order of the codes."""
    with tempfile.TemporaryDirectory(prefix="aerobee-served-") as folder:
        found = [("broker", row) for row in asyncio.run(_broker_rows(Path(folder)))]
    found += [("name server", row) for row in _namesrv_rows()]
    lines = ["| code | request | by | its code | header | access |"]
    lines.append("| ---: | --- | --- | --- | --- | --- |")
    for daemon, row in sorted(found, key=lambda one: (one[1].code, one[0])):
        code = inspect.unwrap(row.handler)
        path = Path(inspect.getfile(code)).resolve().relative_to(ROOT)
        header = "none"
        if row.header is not None:
            header = f"`{row.header.__name__}` ({row.header.__module__.rpartition('.')[2]})"
        lines.append(
            f"| {row.code} | {codes.REQUEST_NAMES[row.code]} | {daemon} "
            f"| `{path}` `{code.__name__}` | {header} | {_asked(row.access)} |"
        )
    return "\n".join(lines) + "\n"


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
