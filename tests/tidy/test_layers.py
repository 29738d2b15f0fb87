"""Arrows between the folders point down, and each outside package has its one place.

When one of these fails, move the code to the layer it belongs to; the pictures are in
ARCHITECTURE.md. Widening a table here is a decision to be written down there.
"""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from aerobee.protocol import codes

from . import tree

# What each layer may import besides itself and Python.
ARROWS = {
    "protocol": set(),
    "protocol.aio": {"protocol"},
    "conf": {"protocol"},
    "store": {"protocol"},
    "namesrv": {"conf", "protocol.aio", "protocol"},
    "controller": {"conf", "store", "protocol.aio", "protocol"},
    "broker": {"conf", "store", "protocol.aio", "protocol"},
    "client": {"protocol.aio", "protocol"},
    "proxy": {"client", "conf", "protocol.aio", "protocol"},
    "spark": {"client", "store", "protocol"},
    "console": {"client", "protocol.aio", "protocol"},
    "testing": {"broker", "namesrv"},
    "tools": {
        "broker",
        "client",
        "conf",
        "console",
        "namesrv",
        "protocol.aio",
        "protocol",
        "scripts",
        "spark",
    },
    "scripts": {
        *("conf", "store", "namesrv", "controller", "broker", "client", "proxy", "spark"),
        *("console", "protocol.aio", "protocol"),
    },
}

# The rooms of a folder from the bottom up: each may import the rooms before it. "." is the folder.
ROOMS = {
    "protocol": [
        *(".", "codec", "filters", "message", "bodies", "security", "kernels", "headers"),
        *("queues", "aio"),
    ],
    "store": [
        *("base", "files", "epochs", "log", "queues", "timer", "index", "kernels", "engine"),
        *("columns", ".", "inspect", "backup"),
    ],
    "broker": [
        *("settings", "access", "runtime", "filters", "topics", "groups", "naming", "scheduled"),
        *("pull", "transactions", "admin", "pop", "send", "replication", "acting", "member"),
        *("roles", "monitoring", "."),
    ],
    "client": [
        *(".", "base", "cluster", "group", "producer", "pop", "push", "pull", "admin", "mirror"),
        "blocking",
    ],
    "console": [".", "findings", "clusters", "access", "messages", "actions", "web"],
    "proxy": [
        *("definitions", "settings", "messages", "http2", "routes", "access", "handles"),
        *("telemetry", "calls", "."),
    ],
    "scripts": [
        "harness",
        "output",
        ".",
        "processes",
        "init",
        "commands",
        "loads",
        "benchmark",
    ],
}

# What plain sends are done with where numba is installed.
COMPILED = ["protocol/kernels", "protocol/aio", "broker/send"]
# Each outside package and the folders that may know it.
PLACES = {
    "aiokafka": ["client/mirror"],
    "aiohttp": ["console", "client/cluster", "controller"],
    "cryptography": ["protocol/security"],
    "fsspec": ["store/backup"],
    "google": ["proxy", "console/messages"],  # protobuf
    "grpc": ["scripts"],
    "grpc_tools": ["tools"],
    "h2": ["proxy/http2"],
    "isal": ["protocol/message"],
    "jh2": ["proxy/http2"],
    "jinja2": ["console/web"],
    "lark": ["protocol/filters"],
    "llvmlite": ["protocol/kernels"],  # of numba
    "markupsafe": ["console/web"],  # of jinja2
    "mmh3": ["broker/filters"],
    "msgpack": ["protocol/codec", "console/messages"],
    "msgspec": [
        *("protocol", "conf", "client", "console", "namesrv", "controller", "broker", "proxy"),
        "scripts/commands",
    ],
    "numba": COMPILED,
    "numpy": ["store", "spark", "broker/scheduled", *COMPILED],
    "opentelemetry": ["client/base"],
    "pandas": ["tools"],
    "polars": ["store/columns"],
    "py4j": ["spark"],  # of pyspark
    "pyarrow": ["spark", "store/columns"],
    "pytest": ["testing"],
    "pyspark": ["spark", "scripts"],
    "rocketmq": ["scripts/loads"],
    "tqdm": ["scripts", "tools"],
    "uvloop": ["scripts"],
    "yaml": ["conf"],
}

# What a layer does without, so that it can be tested as plain functions.
BARRED = {
    "protocol": {"asyncio", "socket", "selectors", "ssl", "threading", "subprocess", "pathlib"},
    "store": {"asyncio", "socket", "selectors", "ssl", "threading", "subprocess", "random"},
}


def test_arrows_between_folders_point_down() -> None:
    wrong = []
    for found in tree.all_imports():
        source = Path(found.file)
        if not found.relative or source.parent == Path():
            continue
        here = tree.layer(source.parts)
        there = tree.layer(tuple(found.name.split(".")[1:]))
        if there != here and there not in ARROWS[here]:
            wrong.append(f"{found.place}: {here} must not import {there}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ROOMS)
def test_arrows_between_rooms_point_down(folder: str) -> None:
    rooms = ROOMS[folder]
    wrong = []
    for found in tree.all_imports():
        parts = Path(found.file).parts
        if parts[0] != folder or not found.relative:
            continue
        target = tuple(found.name.split(".")[1:])
        here = tree.room(parts)
        there = tree.room((*target, ""))
        if target[:1] != (folder,) or there == here:
            continue
        if rooms.index(there) > rooms.index(here) and not found.is_for_types:
            wrong.append(f"{found.place}: {folder}/{here} must not import {folder}/{there}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", tree.FOLDERS)
def test_no_imports_make_a_circle(folder: str) -> None:
    """Imports for types count as well: who reads one module of a circle has to read all."""
    graph: dict[str, set[str]] = {}
    for found in tree.all_imports():
        if found.file.startswith(f"{folder}/") and found.relative:
            here, there = tree.module_of(found.file), tree.imported_module(found.name)
            if there != here:
                graph.setdefault(here, set()).add(there)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as wrong:
        circle = " imports ".join(reversed(wrong.args[1]))
        pytest.fail(f"{circle}; move what they share to a module below, or take a Protocol")


def test_every_room_is_listed() -> None:
    found = {
        (path.parts[0], tree.room(path.parts))
        for path in tree.sources()
        if path.parts[0] in ROOMS and path.name != "__init__.py"
    }
    unlisted = [f"{folder}/{room}" for folder, room in found if room not in ROOMS[folder]]
    assert not unlisted, f"put {unlisted} into ROOMS, after what they import"


def test_every_outside_package_has_its_one_place() -> None:
    wrong = []
    for found in tree.all_imports():
        if found.relative or tree.is_standard(found.top) or found.top == "aerobee":
            continue
        places = PLACES.get(found.top, [])
        if not any(Path(found.file).is_relative_to(place) for place in places):
            wrong.append(f"{found.place}: {found.top} belongs to {places or 'no folder yet'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", BARRED)
def test_protocol_and_store_do_without_the_outside_world(folder: str) -> None:
    wrong = [
        f"{found.place}: {folder} works without {found.top}"
        for found in tree.all_imports()
        if tree.layer(Path(found.file).parts) == folder and found.top in BARRED[folder]
    ]
    assert not wrong, "\n".join(wrong)


def test_connections_know_no_request() -> None:
    """What is particular to a request is handed to `protocol/aio` by its owner."""
    numbers = set(codes.REQUEST_NAMES)
    names = set(codes.REQUEST_NAMES.values())
    written = re.compile(rb'"code":(\d+)')
    wrong = []
    for path in (tree.ROOT / "protocol" / "aio").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_name = (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "codes"
                and node.attr in names
            )
            text = node.value if isinstance(node, ast.Constant) else None
            found = written.findall(text if isinstance(text, bytes) else str(text).encode())
            if is_name or any(int(number) in numbers for number in found):
                line = getattr(node, "lineno", 0)
                wrong.append(f"{path.name}:{line}: pass {ast.unparse(node)} in from its owner")
    assert not wrong, "\n".join(wrong)


def test_inside_the_package_imports_are_relative() -> None:
    wrong = [
        f"{found.place}: import {found.name} by its relative name"
        for found in tree.all_imports()
        if found.top == "aerobee"
        and not found.relative
        and not any(Path(found.file).is_relative_to(guest) for guest in tree.GUESTS)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_proxy_uses_of_the_client_only_its_connections() -> None:
    allowed = {"base", "cluster", "errors"}
    wrong = [
        f"{found.place}: proxy must not import {found.name}"
        for found in tree.all_imports()
        if found.file.startswith("proxy/")
        and found.name.split(".")[1:2] == ["client"]
        and found.name.split(".")[2] not in allowed
    ]
    assert not wrong, "\n".join(wrong)
