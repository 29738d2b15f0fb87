"""The commands of README and docs/: typed as they stand, they print what stands below them."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from aerobee.scripts import cli
from aerobee.testing import LocalCluster

from ..waiting import PROCESS

ROOT = Path(__file__).parents[2]
IDENTITY = ("storePathRootDir", "listenPort")


def blocks(document: str, kind: str) -> list[str]:
    """The blocks of a kind in a document."""
    text = (ROOT / document).read_text()
    found: list[str] = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return found


@pytest.mark.parametrize("document", ["README.md", "docs/tutorial.md"])
def test_the_first_commands_print_what_stands_below_them(
    document: str, aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    (block,) = [block for block in blocks(document, "console") if block.startswith("$ echo")]
    lines = block.splitlines()
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
            timeout=PROCESS,
            env=env,
            cwd=tmp_path,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed += [f"$ {command}", *done.stdout.splitlines()]
    assert printed == lines


def test_the_brokers_of_the_page_on_operation_have_settings_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (properties,) = blocks("docs/operations.md", "properties")
    (tmp_path / "slave.conf").write_text(properties)
    text = "".join(blocks("docs/operations.md", "console"))
    found = re.findall(r"^\$ aerobee (broker .*)$", text, re.MULTILINE)
    brokers = [words for words in found if "--processes" not in words]  # one broker each
    assert len(brokers) == 4
    ports = {}
    for words in brokers:
        assert cli.main([*words.split(), "--print-config"]) == 0
        out, error = capsys.readouterr()
        assert error == ""
        given = re.findall(r"--set (\S+=\S+)", words) or properties.split()
        assert [pair for pair in given if pair not in out] == []
        store, port = (re.findall(rf" {key}=(\S+)$", out, re.MULTILINE) for key in IDENTITY)
        ports[store[0]] = int(port[0])
    # A reader may run them all. A broker uses the ports from listenPort - 2 to listenPort + 7.
    first, *others = sorted(ports.values())
    assert len(others) == 2
    assert all(after - before > 9 for before, after in pairwise([first, *others]))
