"""The shell scripts stop at the first error, say what they do, and can be run."""

import os
import subprocess

from . import tree

SCRIPTS = sorted(
    path
    for path in [*(tree.ROOT / "scripts").iterdir(), *(tree.ROOT / ".ci").iterdir()]
    if path.is_file() and not path.suffix
)


def test_a_script_says_what_it_does_and_stops_at_the_first_error() -> None:
    assert len(SCRIPTS) > 5
    for script in SCRIPTS:
        lines = script.read_text().splitlines()
        assert lines[0].startswith("#!"), script
        assert lines[1].startswith("# "), f"{script}: say what it does"
        assert any(line.startswith("set -eu") for line in lines), script
        assert os.access(script, os.X_OK), f"chmod +x {script}"
        shell = "bash" if "bash" in lines[0] else "sh"
        assert subprocess.run([shell, "-n", script], check=False).returncode == 0
