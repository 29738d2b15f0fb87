"""Functions over arrays that are compiled to machine code by numba, which is an optional package.

They are for work that comes with every message and consists of looking at one byte after the other.
The same work is always done in plain Python, too, for where numba is not installed. Only numbers,
arrays, loops and calls of one another may stand in such functions; they make no arrays. An index
outside of an array raises IndexError, as in Python.

A module with such functions is imported late, by `broker.handlers.plain_lane` and only where numba
is there: that takes a third of a second, and ten where numba has not compiled it before on this
machine. What was compiled is kept in the user's cache folder (~/.cache/aerobee, or the folder that
NUMBA_CACHE_DIR names), so that uninstalling the package leaves no folder of it behind. Where nobody
may write there numba takes `__pycache__`. It stays until the file of the function changes: after a
change of a function that other files call, delete that folder.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])

# Arrays are only looked at, so numba need not count who has them: a third of the time.
_OPTIONS: dict[str, Any] = {"cache": True, "forceinline": True, "_nrt": False}


def compiled(function: Function) -> Function:
    """This function as machine code, made at its first call or found in numba's cache."""
    return _compiled(function, boundscheck=True)


def compiled_unchecked(function: Function) -> Function:
    """The same for one that makes sure by itself that no index is outside of an array."""
    return _compiled(function, boundscheck=False)


def _compiled(function: Function, *, boundscheck: bool) -> Function:
    # numba asks for the folder here, once for each function; it has no option of its own for it.
    before = config.CACHE_DIR
    config.CACHE_DIR = before or _cache_folder()
    try:
        found: Function = numba.njit(boundscheck=boundscheck, **_OPTIONS)(function)
    finally:
        config.CACHE_DIR = before
    return found


def _cache_folder() -> str:
    """Where programs of this user keep what can be made again; "" where there is no such place."""
    base = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(base), "aerobee")
    return str(folder) if folder.is_absolute() else ""


@compiled
def wide(value: Any) -> int:
    """A number of any kind as one of 64 bits with a sign: numba makes a float of mixed ones."""
    return np.int64(value)  # type: ignore[return-value]
