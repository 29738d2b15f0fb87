"""Tests of a module with both libraries of HTTP/2."""

import importlib
import sys
from collections.abc import Iterator

import pytest
from aerobee.proxy.http2 import connection, library, listener

MODULES = (library, connection, listener)


@pytest.fixture(scope="module", params=["jh2", "h2"])
def each_library(request: pytest.FixtureRequest) -> Iterator[str]:
    """The modules of the proxy with jh2, which comes with the extra `fast`, and without."""
    name: str = request.param
    if name == "jh2":
        pytest.importorskip("jh2")
        yield name
        return
    before = [dict(vars(module)) for module in MODULES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "jh2", None)
        for module in MODULES:
            importlib.reload(module)
        assert library.NAME == "h2"
        yield name
    for module, names in zip(MODULES, before, strict=True):
        vars(module).clear()
        vars(module).update(names)
