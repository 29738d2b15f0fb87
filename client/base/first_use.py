"""Names of a package that are imported when they are used for the first time."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package that has these names, each with the
    module where it is. A name that is the module's own means the module."""
    there = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package} has no {name}; it has {', '.join(modules)}")
        module = import_module(modules[name], package)
        is_module = modules[name].endswith(f".{name}")
        there[name] = module if is_module else getattr(module, name)
        return there[name]

    return getattribute, lambda: sorted({*there, *modules})
