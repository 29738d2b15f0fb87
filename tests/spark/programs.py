"""Programs that use Spark: each runs in a process of its own and prints what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SPARK_SECONDS = 600  # on a machine that has much else to do; a tenth of it on a quiet one


def found_by(program: Path, *words: str) -> dict[str, Any]:
    """What a program printed behind FOUND, as JSON."""
    done = subprocess.run(
        [sys.executable, str(program), *words],
        capture_output=True,
        text=True,
        timeout=SPARK_SECONDS,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    result: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    return result
