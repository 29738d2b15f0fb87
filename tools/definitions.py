"""The descriptor set of the proxy, made from the vendored definitions.

    python -m aerobee.tools.definitions            says whether it is current
    python -m aerobee.tools.definitions --write    makes it

The compiler is that of the package grpcio-tools, which the extra `dev` installs.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "proxy" / "definitions"
MADE = FOLDER / "messaging.desc"
SOURCES = ("apache/rocketmq/v2/definition.proto", "apache/rocketmq/v2/service.proto")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the descriptor set, or say whether it is current."""
    parser = argparse.ArgumentParser(description="The descriptor set of the gRPC definitions.")
    parser.add_argument("--write", action="store_true", help="into the proxy's folder")
    made = compiled()
    if parser.parse_args(argv).write:
        MADE.write_bytes(made)
        return 0
    is_current = MADE.is_file() and MADE.read_bytes() == made
    print(f"{MADE.name} is {'current' if is_current else 'stale: run this with --write'}")
    return 0 if is_current else 1


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


if __name__ == "__main__":
    sys.exit(main())
