"""The source tree as these tests see it: folders, files, and what each file imports."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    *("protocol", "store", "namesrv", "controller", "broker", "client", "proxy"),
    *("spark", "console", "conf", "scripts", "testing", "tools"),
)
# Packages of their own that lie in a folder of aerobee, and may import it by its absolute name.
GUESTS = ("spark/pyspark_rocketmq",)


class Import(NamedTuple):
    """One import: where it stands, and what it names ("aerobee.store.files.segment", "numpy")."""

    file: str
    line: int
    name: str
    relative: bool
    is_for_types: bool = False  # under `if TYPE_CHECKING`

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def top(self) -> str:
        """The outermost package."""
        return self.name.partition(".")[0]


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


def imports(path: Path) -> Iterator[Import]:
    """Every import of one file, those inside functions too."""
    package = ("aerobee", *path.parent.parts)
    for_types = {
        inner
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(str(path), node.lineno, alias.name, False)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield Import(str(path), node.lineno, node.module or "", False)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            module = node.module.split(".") if node.module else []
            for alias in node.names:
                name = ".".join((*base, *module, alias.name))
                yield Import(str(path), node.lineno, name, True, node in for_types)


@cache
def all_imports() -> tuple[Import, ...]:
    """Every import of every source file."""
    return tuple(found for path in sources() for found in imports(path))


def module_of(file: str | Path) -> str:
    """The dotted name of a source file below the package, "store.files" for its `__init__`."""
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")


@cache
def _modules() -> frozenset[str]:
    return frozenset(map(module_of, sources()))


def imported_module(name: str) -> str:
    """The module that an import of "aerobee.store.files.segment.Segment" reads."""
    inner = name.removeprefix("aerobee.")
    return inner if inner in _modules() else inner.rpartition(".")[0]


def layer(parts: tuple[str, ...]) -> str:
    """The layer that a path or a dotted name below the package belongs to."""
    return "protocol.aio" if parts[:2] == ("protocol", "aio") else parts[0]


def room(parts: tuple[str, ...]) -> str:
    """The room of a path below the package: the folder below the top one, or "." for none."""
    return parts[1] if len(parts) > 2 and (ROOT / parts[0] / parts[1]).is_dir() else "."


def is_standard(name: str) -> bool:
    """Whether a package is part of Python."""
    return name in sys.stdlib_module_names
