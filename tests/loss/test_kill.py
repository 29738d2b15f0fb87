"""kill -9 at random moments under eight producers, and what the ledger says afterwards.

`AEROBEE_KILLS` is the number of kills (in each flush mode half of them), `AEROBEE_KILLS_SEED` the
seed of the moments.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from aerobee.harness.child import Child

from ..waiting import PROCESS
from .load import SEED, Load

KILLS = int(os.environ.get("AEROBEE_KILLS", "20"))
ACKNOWLEDGED_MAX = 800  # before a kill
COMMAND = [sys.executable, "-m", "aerobee.scripts.cli", "up"]
# So small that logs, queues and index roll over between two kills.
SETTINGS = {
    "httpPort": "0",
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "flushIntervalCommitLog": "50",
    "flushConsumerOffsetInterval": "100",
    "syncFlushTimeout": str(int(PROCESS * 1000)),
}


@contextmanager
def broker(folder: Path, number: int, mode: str) -> Iterator[tuple[Child, str]]:
    """A broker in a process of its own, and its address."""
    words = [*COMMAND, "--namesrv-port", "0", "--listen-port", "0", "--store", str(folder / "s")]
    for key, value in (SETTINGS | {"flushDiskType": mode}).items():
        words += ["--set", f"{key}={value}"]
    environment = {name: "" for name in os.environ if name.startswith("AEROBEE_")}
    with Child(words, folder / f"{number}.stderr", cwd=folder, env=environment) as child:
        ready = child.wait_line(lambda line: "ready" in line, PROCESS)
        found = re.search(r"broker (127\.0\.0\.1:\d+) \(clients", ready)
        assert found is not None, ready
        yield child, found[1]


@pytest.mark.parametrize("kills", [pytest.param(2, marks=pytest.mark.smoke), max(1, KILLS // 2)])
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_nothing_acknowledged_or_read_is_lost_by_kills(
    mode: str, kills: int, tmp_path: Path
) -> None:
    draw = Random(f"{SEED} {mode}")
    load = Load()
    for number in range(kills + 1):
        with broker(tmp_path, number, mode) as (child, address):
            if number:
                await load.read_all(address)
                load.ledger.check()
            if number < kills:
                await load.until(address, draw.randrange(1, ACKNOWLEDGED_MAX), child)
            else:
                assert child.stop() == 0
        said = (tmp_path / f"{number}.stderr").read_text()
        assert "Traceback" not in said, said
    assert load.acknowledged > 50 * kills
