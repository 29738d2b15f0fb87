"""The commands of docs/lake.md print what stands below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.blocking import Admin
from aerobee.testing import LocalCluster

from ..waiting import PROCESS

PAGE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
[TUTORIAL] = [
    block
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    if block.startswith("$ seq")
]


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, and the columns' widths."""
    return " ".join(re.sub(r"[\d,]+", "N", line).split())


def test_the_commands_of_the_tutorial_print_what_stands_below_them(
    aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    program = f'aerobee() {{ {sys.executable} -m aerobee.scripts.cli "$@"; }}'
    with Admin(aerobee_cluster.name_server) as admin:
        admin.create_topic("orders")  # returns when the name server knows it
    printed = []
    commands = [line[2:] for line in TUTORIAL.splitlines() if line.startswith("$ ")]
    assert len(commands) == 5
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", f"{program}; {command}"],
            cwd=tmp_path,
            env={**os.environ, "NAMESRV_ADDR": aerobee_cluster.name_server},
            capture_output=True,
            text=True,
            timeout=PROCESS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed += [f"$ {command}", *done.stdout.replace(str(tmp_path), "/home/you").splitlines()]
    assert [shape(line) for line in printed] == [shape(line) for line in TUTORIAL.splitlines()]
