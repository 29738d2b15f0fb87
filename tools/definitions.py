"""The descriptor set of the proxy, made from the vendored definitions.

The compiler is that of the package grpcio-tools, which the extra `dev` installs.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "proxy" / "definitions"
SOURCES = ("apache/rocketmq/v2/definition.proto", "apache/rocketmq/v2/service.proto")


def compiled() -> bytes:
    """The descriptor set of the definitions, with the well-known types that they import."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made"
        command = (
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{FOLDER}", "--include_imports"),
            *(f"--descriptor_set_out={path}", *SOURCES),
        )
        subprocess.run(command, check=True)  # noqa: S603 - our own files
        return path.read_bytes()
