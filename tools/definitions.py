"""The descriptor set of the proxy, made from the definitions beside it.

The compiler is that of the package grpcio-tools, which the extra `dev` installs.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "proxy" / "definitions"
SOURCES = (
    "apache/rocketmq/v2/definition.proto",
    "apache/rocketmq/v2/service.proto",
    "grpc/health.proto",
    "grpc/reflection.proto",
)
ALPHA = "grpc/reflection_v1alpha.proto"  # is made from the version v1


def compiled() -> bytes:
    """The descriptor set of the definitions, with the well-known types that they import."""
    with tempfile.TemporaryDirectory() as folder:
        alpha, path = Path(folder, ALPHA), Path(folder, "made")
        alpha.parent.mkdir()
        text = (FOLDER / SOURCES[-1]).read_text()
        alpha.write_text(text.replace("grpc.reflection.v1;", "grpc.reflection.v1alpha;"))
        command = (
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{FOLDER}",
            f"-I{folder}",
            "--include_imports",
            f"--descriptor_set_out={path}",
            *SOURCES,
            ALPHA,
        )
        subprocess.run(command, check=True)  # noqa: S603 - our own files
        return path.read_bytes()
