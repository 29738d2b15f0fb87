"""The source tree as these tests see it: its folders and files."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    *("protocol", "store", "namesrv", "controller", "broker", "client", "proxy"),
    *("spark", "lake", "console", "conf", "scripts", "testing", "harness", "bench", "tools"),
)


@cache
def sources() -> tuple[Path, ...]:
    """All Python files of the package, relative to the root."""
    found = [ROOT / "__init__.py"]
    for folder in FOLDERS:
        found += sorted((ROOT / folder).rglob("*.py"))
    return tuple(path.relative_to(ROOT) for path in found)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse((ROOT / path).read_text(), str(path))
