"""Functions over arrays that are compiled to machine code by numba, which is an optional package.

They are for work that comes with every message and reads one byte after the other.
Where numba is not installed, interpreted Python does the same work. Only numbers,
arrays, loops and calls of one another may stand in such functions; they make no arrays. An index
outside of an array raises IndexError, as in Python.

A module with such functions is imported late, by `broker/send/engine.py` and only where numba
is there: that takes a third of a second, and ten where numba has not compiled it before on this
machine. What was compiled is kept until the file of the function changes: by brokers in the user's
cache folder (`broker/send/engine.py`), else in `__pycache__`. After a change of a function that
functions in other files call, delete these `*.nb?`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

# Arrays are only read, so numba need not count references to them: a third of the time.
_OPTIONS: dict[str, Any] = {"cache": True, "forceinline": True, "_nrt": False}


def compiled(function: Function) -> Function:
    """Compile this function to machine code, at its first call; numba's cache keeps the code."""
    found: Function = numba.njit(boundscheck=True, **_OPTIONS)(function)
    return found


def compiled_unchecked(function: Function) -> Function:
    """The same for one that makes sure by itself that no index is outside of an array."""
    found: Function = numba.njit(boundscheck=False, **_OPTIONS)(function)
    return found


@compiled
def int64(value: Any) -> int:
    """A number of any kind as one of 64 bits with a sign: numba makes a float of mixed ones."""
    return np.int64(value)  # type: ignore[return-value]
