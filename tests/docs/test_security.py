"""The commands of docs/security.md, run as they stand but for ports, which here are free ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from aerobee.harness import java_side
from aerobee.harness.child import Child

from ..waiting import LONG

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SHELL = [text for kind, text in BLOCKS if kind == "sh"]
PLAIN = [text for kind, text in BLOCKS if kind == ""]


class Walk:
    """A reader of the page: a folder, an environment, and the ports that stand for the usual."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = java_side.free_broker_port()
        self.namesrv_port = java_side.free_ports(1)[0]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("AEROBEE_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        self.env = {**kept, "PATH": path, "NAMESRV_ADDR": f"127.0.0.1:{self.namesrv_port}"}

    def here(self, text: str) -> str:
        """A text of the page with the port of the name server here."""
        return text.replace("9876", str(self.namesrv_port))

    def run(self, *scripts: str) -> str:
        """What these blocks print, one after the other in one shell that ends at an error."""
        return self._output(["bash", "-eu", "-c", self.here("\n".join(scripts))])

    def python(self, text: str) -> str:
        """What a block of Python prints."""
        return self._output([sys.executable, "-c", self.here(text)])

    def _output(self, argv: list[str]) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def daemon(self, port: int, *scripts: str) -> Iterator[Child]:
        """The daemon that the last of these lines starts, until the end of the block."""
        *before, command = "\n".join(scripts).strip().splitlines()
        small = {
            "AEROBEE_LISTEN_PORT": str(port),
            "AEROBEE_HTTP_PORT": "-1",
            "AEROBEE_STORE_PATH_ROOT_DIR": str(self.folder / "store"),
            "AEROBEE_MAPPED_FILE_SIZE_COMMIT_LOG": str(4 << 20),
            "AEROBEE_MAX_INDEX_NUM": "400000",
        }
        script = self.here("\n".join([*before, f"exec {command}"]))
        stderr = self.folder / f"{command.split()[1]}.stderr"
        env = self.env | small
        child = Child(["bash", "-eu", "-c", script], stderr, cwd=self.folder, env=env)
        with child:
            child.wait_line(lambda line: "ready" in line, LONG)
            yield child
            child.stop()


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(tmp_path)


def test_certificate_daemons_commands_and_a_python_client(walk: Walk) -> None:
    if shutil.which("openssl") is None:
        lack = "openssl is not installed (apt-get install openssl)"
        if os.environ.get("CI") == "true":
            pytest.fail(lack)
        pytest.skip(lack)
    certificate, exports, namesrv, broker, commands = SHELL[:5]
    [python] = [text for kind, text in BLOCKS if kind == "python"]
    walk.run(certificate)
    with ExitStack() as daemons:
        daemons.enter_context(walk.daemon(walk.namesrv_port, exports, namesrv))
        daemons.enter_context(walk.daemon(walk.port, exports, broker))
        said = walk.run(commands).splitlines()
        assert said[:2] == ["sent 1 message to greetings", "hello"]
        assert re.fullmatch(r"[0-9A-F]{32}\n", walk.python(python))
        # Nothing of that works without TLS, and the reason is said.
        plain = subprocess.run(
            ["aerobee", "topics"],
            env=walk.env,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert plain.returncode == 1
        assert "does it want TLS? A command takes --tls or AEROBEE_TLS=true" in plain.stderr


def test_users_and_rules(walk: Walk) -> None:
    settings = walk.folder / "broker.conf"
    settings.write_text(next(text for text in PLAIN if "authenticationEnabled" in text))
    keys, users = SHELL[5:]
    with ExitStack() as daemons:
        daemons.enter_context(walk.daemon(walk.namesrv_port, "aerobee namesrv"))
        broker = f"aerobee broker -n {walk.env['NAMESRV_ADDR']} -c {settings}"
        daemons.enter_context(walk.daemon(walk.port, broker))
        said = walk.run(keys, users, "aerobee users", "aerobee users show shop").splitlines()
        assert said[0] == "created user shop, who may do nothing yet: see `users allow`"
        assert said[1] == "user shop may Pub, Sub, Get on Topic:orders, Group:billing*"
        assert [line.split()[0] for line in said[2:5]] == [
            "RESOURCE",
            "Group:billing*",
            "Topic:orders",
        ]
        assert said[5] == "user shop has no rule about Group:billing* any more"
        assert [line.split()[0] for line in said[6:]] == [
            *("USER", "admin", "shop", "RESOURCE", "Topic:orders")
        ]
        walk.env |= {"AEROBEE_ACCESS_KEY": "shop", "AEROBEE_SECRET_KEY": "another-secret"}
        assert walk.run("echo one | aerobee pub orders") == "sent 1 message to orders\n"
