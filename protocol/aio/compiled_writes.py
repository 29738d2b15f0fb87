"""Bytes to many sockets in one call: compiled.

A call of `os.write` from Python takes a tenth of what the kernel then does with it; for answers
that go out by the thousand the loop around it is machine code, too.
"""

from typing import TYPE_CHECKING

from numba.core import types

from ..compiled import compiled
from ..plain_reading import Numbers

if TYPE_CHECKING:

    def _write(fd: int, address: int, size: int) -> int:
        """Write so many bytes that lie at this address; how many were taken, or -1."""

else:
    # write(2), as the C library of this process has it.
    _write = types.ExternalFunction("write", types.intp(types.intp, types.intp, types.intp))


@compiled
def write_all(fds: Numbers, address: int, ends: Numbers, written: Numbers) -> int:
    """Write the bytes at `address` to these non-blocking sockets: to each those up to its end.

    A negative one is passed over. `written` gets how many bytes each took, which is 0 for an error:
    a later try finds it again. How many were taken of all.
    """
    start = done = 0
    for number in range(len(fds)):
        size = ends[number] - start
        taken = 0
        if size > 0 and fds[number] >= 0:
            taken = max(0, _write(fds[number], address + start, size))
        written[number] = taken
        done += taken
        start = ends[number]
    return done
