"""`aerobee pub`: which queues a file goes to, and what a terminal is told."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from aerobee.client.blocking import Admin
from aerobee.testing.cluster import LocalCluster

from ...waiting import PROCESS
from ..command import AEROBEE, Inside, environment


def test_a_short_file_goes_to_every_queue_of_every_broker(inside: Inside, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    with LocalCluster(brokers=2) as cluster:
        where = ("-n", cluster.name_server)
        with Admin(cluster.name_server) as admin:
            admin.create_topic("spread", 4)
        code, out, _ = inside("pub", "spread", str(file), *where)
        assert (code, out) == (0, "sent 100 messages to spread\n")
        [found] = inside.objects("topics", "show", "spread", *where)
    stored = {(one["broker"], one["queue"]): one["messages"] for one in found["queues"]}
    assert len(stored) == 8
    assert set(stored.values()) <= {13, 9}  # 7 batches of 13 and one of 9


def test_a_terminal_is_told_how_to_write_and_how_to_end(cluster: LocalCluster) -> None:
    ours, its = pty.openpty()
    words = [*AEROBEE, "pub", "typed", "-n", cluster.name_server]
    with subprocess.Popen(
        words, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as writer:
        os.close(its)
        assert writer.stderr is not None
        assert writer.stderr.readline() == b"one message a line, Ctrl-D ends\n"
        os.write(ours, b"hello\n\x04")
        out, _ = writer.communicate(timeout=PROCESS)
    os.close(ours)
    assert out == b"sent 1 message to typed\n"
