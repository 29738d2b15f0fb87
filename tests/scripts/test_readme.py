"""The commands of the README, typed as they stand into a shell, print what stands below them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from aerobee.testing import LocalCluster

ROOT = Path(__file__).parents[2]
SECONDS = 120  # a deadline, for a machine that has much else to do


def console() -> str:
    """The one console block of the README."""
    blocks = re.findall(
        r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 1
    return str(blocks[0])


def test_the_commands_of_the_readme_print_what_it_says(
    aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    lines = console().splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    assert len(commands) == 2
    env = {
        **os.environ,
        "NAMESRV_ADDR": aerobee_cluster.name_server,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    printed = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=env,
            cwd=tmp_path,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed += [f"$ {command}", *done.stdout.splitlines()]
    assert printed == lines
