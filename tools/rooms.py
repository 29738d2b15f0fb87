"""The rooms of the source tree, their subjects, and a diagram of what imports what.

A room is a folder with an `__init__.py`; the first line of that file is the room's subject. Imports
that only type checkers read are left out. An arrow that follows from others is left out as well:
broker imports store, and store imports protocol, so the arrow from broker to protocol is not drawn.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *("protocol", "store", "namesrv", "controller", "broker", "client", "proxy"),
    *("spark", "console", "conf", "testing", "scripts"),
)
SERVER_FOLDERS = ("protocol", "store", "broker")
Graph = Mapping[str, set[str]]
Namer = Callable[[str], str]  # of a room


def rooms() -> list[str]:
    """Every room by its path below the root, in the order of the folders ("protocol/aio")."""
    found = []
    for folder in FOLDERS:
        packages = sorted(path.parent for path in (ROOT / folder).rglob("__init__.py"))
        found += [str(package.relative_to(ROOT)) for package in packages]
    return found


def subject(room: str) -> str:
    """The first paragraph of a room's docstring, as one line."""
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


def table() -> str:
    """Every folder, and every room of the folders on the server side of a message, as a table."""
    return _table(
        room for room in rooms() if "/" not in room or room.partition("/")[0] in SERVER_FOLDERS
    )


def folders_diagram() -> str:
    """The imports between the top folders; protocol/aio, which needs asyncio, is one of its own."""
    return diagram(_graph(_layer))


def rooms_diagram(folder: str) -> str:
    """The imports between the rooms of one folder; "." are the files of the folder itself."""
    prefix = f"{folder}/"
    graph = _graph(lambda room: room if room == folder or room.startswith(prefix) else "")
    named = {
        _short(room, folder): {_short(other, folder) for other in others}
        for room, others in graph.items()
        if room
    }
    return diagram(named)


def diagram(graph: Graph) -> str:
    """A graph as a mermaid flowchart: an arrow means "imports"."""
    lines = ["```mermaid", "flowchart TD"]
    kept = reduced(graph)
    names = {node: node.replace("/", "_").replace(".", "itself") for node in graph}
    lines += [f'  {names[node]}["{node}"]' for node in sorted(graph)]
    for node in sorted(kept):
        lines += [f"  {names[node]} --> {names[other]}" for other in sorted(kept[node])]
    return "\n".join([*lines, "```"]) + "\n"


def reduced(graph: Graph) -> dict[str, set[str]]:
    """The graph without arrows that a longer path makes needless; circles stay as they are."""
    kept = {node: set(others) for node, others in graph.items()}
    for node in sorted(graph):
        for other in sorted(graph[node]):
            if node not in _reachable(graph, other) and any(
                other in _reachable(graph, through)
                for through in graph[node] - {other}
                if through not in _reachable(graph, other)
            ):
                kept[node].discard(other)
    return kept


def folder_pages() -> str:
    """A heading, a diagram and a table for each folder that has rooms."""
    with_rooms = [folder for folder in FOLDERS if f"{folder}/" in "\n".join(rooms())]
    return "\n".join(
        f"## `{folder}/`\n\n{rooms_diagram(folder)}\n"
        + _table(room for room in rooms() if room.startswith(f"{folder}/"))
        for folder in with_rooms
    )


def _table(names: Iterable[str]) -> str:
    lines = ["| room | what it is |", "| --- | --- |"]
    lines += [f"| `{room}/` | {subject(room)} |" for room in names]
    return "\n".join(lines) + "\n"


def _reachable(graph: Graph, start: str) -> set[str]:
    """The nodes that a path of one arrow or more leads to."""
    found: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += graph.get(node, ())
    return found


def _graph(name: Namer) -> dict[str, set[str]]:
    """The imports between rooms, by the name each room is given; no name leaves a room out."""
    found: dict[str, set[str]] = {}
    for importer, imported in _imports():
        here, there = name(importer), name(imported)
        found.setdefault(here, set())
        found.setdefault(there, set())
        if here and there and here != there:
            found[here].add(there)
    found.pop("", None)
    return found


def _layer(room: str) -> str:
    return room if room == "protocol/aio" else room.partition("/")[0]


def _short(room: str, folder: str) -> str:
    return room.removeprefix(f"{folder}/") if room != folder else "."


@cache
def _imports() -> frozenset[tuple[str, str]]:
    """Each pair of rooms of which the first imports the second."""
    known = set(rooms())
    found = set()
    for room in known:
        for file in (ROOT / room).glob("*.py"):
            for target in _targets(file):
                path = "/".join(target)
                while path and path not in known:
                    path = path.rpartition("/")[0]
                if path:
                    found.add((room, path))
    return frozenset(found)


def _targets(file: Path) -> Iterator[tuple[str, ...]]:
    """The relative imports of a file that run, as paths below the root."""
    package = file.parent.relative_to(ROOT).parts
    parsed = ast.parse(file.read_text(), str(file))
    for_types = {
        inner
        for node in ast.walk(parsed)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.level and node not in for_types:
            base = package[: len(package) - node.level + 1]
            module = tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, *module, alias.name)
