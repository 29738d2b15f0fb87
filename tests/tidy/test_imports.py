"""Each outside package has its one place, and connections know no request.

What the folders and rooms may import of each other is in pyproject.toml, as contracts of
import-linter; scripts/check reads them. That they see every file, room and circle is tested here.
"""

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import grimp
from aerobee.protocol import codes

from . import tree

# The parts of the fast path of sends where numba is installed.
COMPILED = ["protocol.kernels", "protocol.aio", "broker.send"]
# Each outside package and the folders that may know it.
PLACES = {
    "aiokafka": ["client.mirror"],
    "aiohttp": ["console", "client.cluster", "controller"],
    "cryptography": ["protocol.security"],
    "fsspec": ["store.backup"],
    "google": ["proxy", "console.messages"],  # protobuf
    "grimp": ["tools"],
    "grpc": ["scripts", "bench.loads"],
    "h2": ["proxy.http2"],
    "isal": ["protocol.message"],
    "jh2": ["proxy.http2"],
    "jinja2": ["console.web"],
    "lark": ["protocol.filters"],
    "llvmlite": ["protocol.kernels"],  # of numba
    "markupsafe": ["console.web"],  # of jinja2
    "mmh3": ["broker.filters"],
    "msgpack": ["console.messages"],
    "msgspec": [
        *("protocol", "conf", "client", "console", "namesrv", "controller", "broker", "proxy"),
        *("lake", "scripts.commands", "tools"),
    ],
    "numba": COMPILED,
    "numpy": ["store", "lake", "spark", "bench", "broker.scheduled", *COMPILED],
    "opentelemetry": ["client.base", "scripts"],
    "pandas": ["tools", "lake.union"],
    "polars": ["store.columns", "lake.union"],
    "py4j": ["spark"],  # of pyspark
    "pyarrow": ["lake", "spark", "store.columns", "bench"],
    "duckdb": ["lake.sql"],
    "pyiceberg": ["lake", "bench"],
    "pytest": ["testing"],
    "pyspark": ["spark", "bench"],
    "requests": ["lake"],  # of pyiceberg
    "rocketmq": ["bench.loads"],
    "tqdm": ["scripts", "tools"],
    "uvloop": ["scripts"],
    "yaml": ["conf", "lake"],
}


@cache
def graph() -> grimp.ImportGraph:
    """All imports; external packages are single modules."""
    return grimp.build_graph("aerobee", include_external_packages=True, cache_dir=None)


def test_every_outside_package_has_its_one_place() -> None:
    wrong = [
        f"{file} imports {package}, which belongs to {PLACES.get(package, [])}"
        for package in graph().modules
        if not package.startswith("aerobee") and package not in sys.stdlib_module_names
        for file in graph().find_modules_that_directly_import(package)
        if not f"{file}.".startswith(
            tuple(f"aerobee.{place}." for place in PLACES.get(package, []))
        )
    ]
    assert not wrong, "\n".join(wrong)


def module(path: Path) -> str:
    """The name of a file of the package."""
    return ".".join(("aerobee", *path.with_suffix("").parts)).removesuffix(".__init__")


def test_the_contracts_see_every_file() -> None:
    unseen = {path for path in tree.sources() if module(path) not in graph().modules}
    assert not unseen, "put an __init__.py beside them"


def test_every_room_has_its_place_in_the_layers() -> None:
    settings = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    unlisted = {
        room
        for contract in settings["contracts"]
        if contract["type"] == "layers" and not contract.get("exhaustive")
        for room in map(module, (path for path in tree.sources() if path.name == "__init__.py"))
        if room.rpartition(".")[0] in contract["containers"]
        and room.rpartition(".")[2] not in contract["layers"]
    }
    assert not unlisted, "put them into `layers`, above what they import"


def test_no_package_makes_a_circle_with_what_is_in_it() -> None:
    """Contracts look for circles of those beside each other only."""
    imports = graph()
    circles = [
        " imports ".join((inner, *chain))
        for package in map(module, (each for each in tree.sources() if each.name == "__init__.py"))
        for inner in imports.find_modules_that_directly_import(package)
        if inner.startswith(f"{package}.")
        and (chain := imports.find_shortest_chain(importer=package, imported=inner))
    ]
    assert not circles, "\n".join(circles)


def test_connections_know_no_request() -> None:
    """What is particular to a request is handed to `protocol/aio` by its owner."""
    wrong = [
        f"{path.name}: pass {name or number} in from its owner"
        for path in (tree.ROOT / "protocol" / "aio").glob("*.py")
        for name, number in re.findall(r'codes\.([A-Z]\w+)|"code":(\d+)', path.read_text())
        if name in codes.REQUEST_NAMES.values() or (number and int(number) in codes.REQUEST_NAMES)
    ]
    assert not wrong, "\n".join(wrong)
