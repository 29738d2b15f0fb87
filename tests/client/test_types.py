"""The public classes of the client pass a strict type checker."""

import subprocess
import sys
from pathlib import Path

import aerobee.client

PROGRAM = Path(__file__).with_name("user_program.py")


def test_a_users_program_passes_a_strict_type_checker(tmp_path: Path) -> None:
    # The folder of a checkout may have any name; the type checker finds the package by its own.
    root = Path(aerobee.client.__file__).parents[1]
    (tmp_path / "aerobee").symlink_to(root)
    (tmp_path / PROGRAM.name).write_text(PROGRAM.read_text())
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--cache-dir",
            str(tmp_path / "cache"),
            PROGRAM.name,
        ],
        env={"MYPYPATH": str(tmp_path), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout.startswith("Success: no issues found"), checked.stdout + checked.stderr


def test_the_program_uses_each_public_name() -> None:
    text = PROGRAM.read_text()
    assert [name for name in aerobee.client.__all__ if name not in text] == []
