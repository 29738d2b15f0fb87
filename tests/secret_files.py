"""Files with secrets, which daemons refuse when others can read them."""

from pathlib import Path


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that its owner alone can read."""
    path.touch(mode=0o600)
    path.write_bytes(data)
