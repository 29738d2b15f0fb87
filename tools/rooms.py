"""The rooms of the source tree, their subjects, and a diagram of what imports what.

A room is a folder with an `__init__.py`; the first line of that file is the room's subject. Imports
that only type checkers read are left out. An arrow that follows from others is left out as well:
broker imports store, and store imports protocol, so the arrow from broker to protocol is not drawn.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "protocol",
    "store",
    "namesrv",
    "controller",
    "broker",
    "client",
    "proxy",
    "lake",
    "spark",
    "console",
    "conf",
    "testing",
    "harness",
    "scripts",
    "bench",
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
    reach = {node: _reachable(graph, node) for node in graph}

    def follows(node: str, other: str) -> bool:
        return node not in reach[other] and any(
            other in reach[through] and through not in reach[other]
            for through in graph[node] - {other}
        )

    return {
        node: {other for other in others if not follows(node, other)}
        for node, others in graph.items()
    }


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
    waiting = [*graph[start]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += graph[node]
    return found


def _graph(name: Namer) -> dict[str, set[str]]:
    """The imports between rooms, by the name each room is given; no name leaves a room out."""
    known = set(rooms())
    found: dict[str, set[str]] = {}
    modules = _modules()
    for importer in modules.modules:
        here = name(_room(importer, known))
        for imported in modules.find_modules_directly_imported_by(importer):
            there = name(_room(imported, known))
            found.setdefault(here, set()).add(there)
            found.setdefault(there, set())
    found.pop("", None)
    return {here: others - {here, ""} for here, others in found.items()}


def _layer(room: str) -> str:
    return room if room == "protocol/aio" else room.partition("/")[0]


def _short(room: str, folder: str) -> str:
    return room.removeprefix(f"{folder}/") if room != folder else "."


def _room(module: str, known: set[str]) -> str:
    """The room of a module ("aerobee.store.log.walk" is in "store/log"), "" without one."""
    path = module.partition(".")[2].replace(".", "/")
    while path and path not in known:
        path = path.rpartition("/")[0]
    return path


@cache
def _modules() -> grimp.ImportGraph:
    return grimp.build_graph("aerobee", exclude_type_checking_imports=True, cache_dir=None)
