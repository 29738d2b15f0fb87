"""The list of served requests for the documents, made from the request tables themselves.

    python -m aerobee.scripts.dev.served            prints both lists
    python -m aerobee.scripts.dev.served --write    into docs/requests.md and ARCHITECTURE.md

A list stands between two marks; the rest of a document is left alone. A test compares what stands
there with what is made here, so a new row in a table can't be forgotten.
"""

import argparse
import asyncio
import inspect
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...broker.pull.handlers import PullHandlers
from ...broker.server import Broker
from ...broker.settings.config import load_broker
from ...broker.table import full_table
from ...namesrv.config import NamesrvConfig
from ...namesrv.handlers import Handlers
from ...namesrv.routes import RouteTable
from ...namesrv.settings import Settings
from ...protocol import codes
from ...protocol.aio.connection import Row

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- served: begin -->\n", "<!-- served: end -->"


class Served(NamedTuple):
    """One request: who serves it, and where its code is."""

    daemon: str
    code: int
    name: str
    header: str
    access: str
    file: str
    function: str


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the lists."""
    parser = argparse.ArgumentParser(description="The list of served requests.")
    parser.add_argument("--write", action="store_true", help="into the documents")
    options = parser.parse_args(argv)
    for document, text in documents(all_served()).items():
        if options.write:
            path = ROOT / document
            path.write_text(replaced(path.read_text(), text))
        else:
            print(f"{document}:\n\n{text}")
    return 0


def all_served() -> list[Served]:
    """Every request of both daemons, by code."""
    with tempfile.TemporaryDirectory(prefix="aerobee-served-") as folder:
        broker = asyncio.run(_broker_rows(Path(folder)))
    found = [_served("broker", row) for row in broker]
    found += [_served("name server", row) for row in _namesrv_rows()]
    return sorted(found, key=lambda one: (one.code, one.daemon))


def documents(served: Sequence[Served]) -> dict[str, str]:
    """The list of each document that has one."""
    return {"docs/requests.md": _by_file(served), "ARCHITECTURE.md": _by_code(served)}


def replaced(document: str, text: str) -> str:
    """The document with this between its marks; ValueError when it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN.strip()} and {END} to put the list between")
    return f"{before}{begin}{text}{end}{after}"


def _by_file(served: Sequence[Served]) -> str:
    """What is served, grouped by the file that does it."""
    files: dict[tuple[str, str], list[Served]] = {}
    for one in served:
        files.setdefault((one.daemon, one.file), []).append(one)
    lines = ["| by | in | requests (code) |", "| --- | --- | --- |"]
    for (daemon, file), ones in sorted(files.items()):
        names = ", ".join(f"{one.name} ({one.code})" for one in ones)
        lines.append(f"| {daemon} | `{file}` | {names} |")
    return "\n".join(lines) + "\n"


def _by_code(served: Sequence[Served]) -> str:
    """Where the code of each request is."""
    lines = ["| code | request | by | its code | header | access |"]
    lines.append("| ---: | --- | --- | --- | --- | --- |")
    for one in served:
        where = f"`{one.file}` `{one.function}`"
        lines.append(
            f"| {one.code} | {one.name} | {one.daemon} | {where} | {one.header} | {one.access} |"
        )
    return "\n".join(lines) + "\n"


def _served(daemon: str, row: Row) -> Served:
    code = inspect.unwrap(row.handler)
    path = inspect.getsourcefile(code)
    assert path is not None, f"{code} has no source file"
    header = "none"
    if row.header is not None:
        file = row.header.__module__.rpartition(".")[2]
        header = f"`{row.header.__name__}` ({file})"
    return Served(
        *(daemon, row.code, codes.REQUEST_NAMES[row.code], header, row.access),
        *(str(Path(path).resolve().relative_to(ROOT)), code.__name__),
    )


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
        pulls = PullHandlers(
            *(config, broker.store, broker.permissions, broker.groups, broker.offsets),
            *(broker.clients, broker.filters, broker.stats, broker.now_ms),
        )
        return list(full_table(broker, pulls).values())
    finally:
        await broker.stop()


def _namesrv_rows() -> list[Row]:
    handlers = Handlers(RouteTable(), Settings(None), NamesrvConfig(), lambda: 0, lambda _: None)
    return handlers.rows()


if __name__ == "__main__":
    sys.exit(main())
