"""A real etcd of one member, as a process on loopback with its data in a folder of the caller's."""

import shutil
import time
from pathlib import Path

from .child import Child, ChildFailed
from .java_side import free_ports

READY_SECONDS = 60
READY = b"ready to serve client requests"
LACK = "the program etcd is not installed (Debian's package etcd-server has it)"


def program() -> str | None:
    """The path of etcd, None where it is not installed."""
    return shutil.which("etcd")


class EtcdProcess:
    """One etcd. It keeps its port and its data from start to start.

    `options` are further ones of its command line; with `cert-file` among them the URL is https.
    """

    def __init__(self, folder: Path, options: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._options = options or {}
        port, peer_port = free_ports(2)
        scheme = "https" if "cert-file" in self._options else "http"
        self.url = f"{scheme}://127.0.0.1:{port}"
        self._peer_url = f"http://127.0.0.1:{peer_port}"
        self._child: Child | None = None

    def start(self) -> None:
        """Start it, and return once it serves. ChildFailed with the end of its log."""
        path = program()
        if path is None:
            raise ChildFailed(LACK)
        options = {
            "name": "n",
            "data-dir": str(self._folder / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self._peer_url,
            "initial-advertise-peer-urls": self._peer_url,
            "initial-cluster": f"n={self._peer_url}",
            **self._options,
        }
        stderr = self._folder / "etcd.stderr"
        begin = stderr.stat().st_size if stderr.exists() else 0
        argv = [path, *(f"--{key}={value}" for key, value in options.items())]
        self._child = Child(argv, stderr, cwd=self._folder)
        deadline = time.monotonic() + READY_SECONDS
        while READY not in stderr.read_bytes()[begin:]:
            if self._child.process.poll() is not None or time.monotonic() > deadline:
                raise ChildFailed(f"etcd does not serve; {self._child.tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it by SIGTERM."""
        if self._child is not None:
            self._child.stop()

    def wipe(self) -> None:
        """Delete the data of an etcd that is stopped."""
        shutil.rmtree(self._folder / "data")
