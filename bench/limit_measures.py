"""What `scripts/bench --only limit` measures: aerobee's rates as parts of what one thread reaches.

The thread is a small C program: it reads the same requests, appends all of one round of epoll to a
file in one write, and answers. It has no topics, queues, index or checks.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..harness import java_side
from ..harness.clusters import AerobeeCluster
from .loads import loadgen
from .measures import CASES, SETTLE_SECONDS, Say, fill, median
from .store_measures import RECORD_BYTES, Held

# The wanted parts of the loads of CASES, in their order; None for a load that is not measured.
PARTS_MIN = (0.85, None, 0.5, 0.6, 0.4, 0.5)
READY_SECONDS = 10


def limits(
    folder: Path, program: Path, source: Path, rounds: int, scale: float, say: Say
) -> list[Held]:
    """A row for each load: aerobee's messages a second by the C program's, in turns."""
    ours = AerobeeCluster(folder / "ours")
    rows = []
    try:
        ours.start()
        with _thread(folder, loadgen.build(source, folder)) as address:
            for number, (case, wanted) in enumerate(zip(CASES, PARTS_MIN, strict=True)):
                if wanted is None:
                    continue
                topic = f"Part{number}"
                load = replace(case.load, count=int(case.load.count * scale))
                loadgen.create_topic(ours.broker, topic)
                if load.mode == "pull":
                    fill(program, ours, topic, load.count)
                found: dict[str, list[dict[str, float]]] = {address: [], ours.broker: []}
                for round_number in range(rounds + 1):
                    for side, results in found.items():
                        time.sleep(SETTLE_SECONDS)
                        result = loadgen.run(program, side, topic, load)
                        if round_number:  # the first one warms up
                            results.append(result)
                        say(f"{load.name}: {side} {result['msgs_per_s']:,.0f}/s")
                most, reached = (median(results, "msgs_per_s") for results in found.values())
                rows.append(
                    Held(
                        f"{load.name}, part of what one C thread reaches",
                        f"{reached / most:.2f}",
                        f">= {wanted:g}",
                        reached >= wanted * most,
                        f"{reached:,.0f} of {most:,.0f} messages/s",
                    )
                )
    finally:
        ours.stop()
    return rows


@contextmanager
def _thread(folder: Path, program: Path) -> Iterator[str]:
    """The address of the C program while it runs."""
    port = java_side.free_ports(1)[0]
    argv = [str(program), str(port), str(folder / "limit.log"), str(RECORD_BYTES)]
    with subprocess.Popen(argv) as process:  # noqa: S603 - no shell
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not _listens(port):
                if time.monotonic() > deadline:
                    raise loadgen.LoadFailed(f"{program} does not listen on port {port}")
                time.sleep(0.01)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
