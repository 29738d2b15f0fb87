"""Systems without the calls that the store makes: one sentence there, and a client that works."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..scripts.command import environment
from ..waiting import PROCESS

# As Windows has it, and as macOS.
LACKS = {
    "fcntl": "import sys; sys.modules['fcntl'] = None",
    "fdatasync": "import os; del os.fdatasync",
    "posix_fallocate": "import os; del os.posix_fallocate",
}


def run(lack: str, program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", f"{LACKS[lack]}\n{program}"],
        capture_output=True,
        text=True,
        timeout=PROCESS,
        env=environment(),
        check=False,
    )


@pytest.mark.parametrize("lack", LACKS)
def test_a_broker_says_in_one_sentence_that_it_runs_on_linux(lack: str, tmp_path: Path) -> None:
    words = ["up", "--namesrv-port", "0", "--listen-port", "0", "--store", str(tmp_path)]
    done = run(lack, f"from aerobee.scripts.cli import main; raise SystemExit(main({words}))")
    assert done.returncode == 1
    assert done.stderr.startswith("aerobee up: broker and store run on Linux, and this is ")
    assert lack in done.stderr
    assert "WSL" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("module", ["broker.server", "store.columns.view"])
def test_an_import_fails_with_the_same_sentence(module: str) -> None:
    done = run("fcntl", f"import aerobee.{module}")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "SystemUnsupported: broker and store run on Linux" in last


def test_the_client_the_name_server_and_their_commands_run_without(unused_tcp_port: int) -> None:
    imports = "import aerobee.client, aerobee.client.blocking, aerobee.namesrv.server"
    assert run("fcntl", imports).returncode == 0
    words = ["topics", "-n", f"127.0.0.1:{unused_tcp_port}"]
    done = run("fcntl", f"from aerobee.scripts.cli import main; raise SystemExit(main({words}))")
    assert done.returncode == 1
    assert done.stderr.startswith("aerobee topics: ")
    assert len(done.stderr.splitlines()) == 1
