"""Starts commands of aerobee as forks of itself, and kills them: nothing is imported once more.

python -m tests.lake.kill_program FOLDER

An order is a line of JSON: {"start": NAME, "words": [...], "at": N, "after": true} runs a command,
which kills itself at its call number N to files or catalog, before its effect or after; without
"at" it goes on. {"kill": NAME} and {"poll": NAME} tell how it ended. At the end of standard input
all of them are killed. FOLDER/NAME.log has what they say.
"""

import json
import logging
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from aerobee.lake import upkeep
from aerobee.scripts.cli import main as aerobee

from .doors import Doors

LATER_MS = 2 * 86_400_000  # a compaction's clock is ahead: it takes today's files, too
IMPORTED = (
    "aerobee.broker.server",
    "aerobee.lake.compaction",
    "aerobee.lake.overview",
    "aerobee.namesrv.server",
    "aerobee.scripts.commands.daemons",
    "aerobee.scripts.commands.lake",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
)


def main(folder: Path) -> None:
    """Follow the orders."""
    os.setpgrp()
    for name in IMPORTED:
        import_module(name)
    children: dict[str, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            pid = os.fork()
            if pid == 0:
                _become(order, folder / f"{order['start']}.log")
            children[order["start"]] = pid
            _say(event="started")
        elif "kill" in order:
            pid = children[order["kill"]]
            os.kill(pid, signal.SIGKILL)
            _say(event="ended", code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            pid, status = os.waitpid(children[order["poll"]], os.WNOHANG)
            _say(event="polled", code=os.waitstatus_to_exitcode(status) if pid else None)
    os.killpg(0, signal.SIGKILL)


def _say(**report: Any) -> None:
    print(json.dumps(report), flush=True)


def _become(order: dict[str, Any], log: Path) -> NoReturn:
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if order["words"][0] == "lake":
            logging.basicConfig(level=logging.INFO)
        if order["words"][:2] == ["lake", "compact"]:
            later_ms = int(time.time() * 1000) + LATER_MS
            upkeep._now_ms = lambda: later_ms
        if order.get("at") is not None:
            Doors(order["at"], _die, after=order["after"]).install(setattr)
        code = aerobee(order["words"])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
