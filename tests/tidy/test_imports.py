"""Each outside package has its one place, and connections know no request.

What the folders and rooms may import of each other is in pyproject.toml, as contracts of
import-linter; scripts/check reads them.
"""

import re
import sys

import grimp
from aerobee.protocol import codes

from . import tree

# What plain sends are done with where numba is installed.
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
        *("scripts.commands", "tools"),
    ],
    "numba": COMPILED,
    "numpy": ["store", "spark", "broker.scheduled", *COMPILED],
    "opentelemetry": ["client.base", "scripts"],
    "pandas": ["tools"],
    "polars": ["store.columns"],
    "py4j": ["spark"],  # of pyspark
    "pyarrow": ["spark", "store.columns"],
    "pytest": ["testing"],
    "pyspark": ["spark", "bench"],
    "rocketmq": ["bench.loads"],
    "tqdm": ["scripts", "tools"],
    "uvloop": ["scripts"],
    "yaml": ["conf"],
}


def test_every_outside_package_has_its_one_place() -> None:
    graph = grimp.build_graph("aerobee", include_external_packages=True, cache_dir=None)
    wrong = [
        f"{file} imports {package}, which belongs to {PLACES.get(package, [])}"
        for package in graph.modules
        if not package.startswith("aerobee") and package not in sys.stdlib_module_names
        for file in graph.find_modules_that_directly_import(package)
        if not f"{file}.".startswith(
            tuple(f"aerobee.{place}." for place in PLACES.get(package, []))
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_connections_know_no_request() -> None:
    """What is particular to a request is handed to `protocol/aio` by its owner."""
    wrong = [
        f"{path.name}: pass {name or number} in from its owner"
        for path in (tree.ROOT / "protocol" / "aio").glob("*.py")
        for name, number in re.findall(r'codes\.([A-Z]\w+)|"code":(\d+)', path.read_text())
        if name in codes.REQUEST_NAMES.values() or (number and int(number) in codes.REQUEST_NAMES)
    ]
    assert not wrong, "\n".join(wrong)
