"""Bytes from and to many sockets in one call: compiled.

A call of `os.write` from Python takes a tenth of what the kernel then does with it, and what a
transport adds to a read takes more than the read; where they come by the thousand the loop around
them is machine code, too.
"""

import socket
from typing import TYPE_CHECKING

from numba.core import types

from ..kernels.compiled import compiled
from ..kernels.parse_sends import Numbers

if TYPE_CHECKING:

    def _recv(fd: int, address: int, size: int, flags: int) -> int:
        """Read up to `size` bytes to this address; the number read, 0 at the end, or -1."""

    def _send(fd: int, address: int, size: int, flags: int) -> int:
        """Write the `size` bytes at this address; the number written, or -1."""

else:
    # recv(2) and send(2), as the C library of this process has them.
    _recv = types.ExternalFunction(
        "recv", types.intp(types.intc, types.intp, types.uintp, types.intc)
    )
    _send = types.ExternalFunction(
        "send", types.intp(types.intc, types.intp, types.uintp, types.intc)
    )

NOT_READ = -2
# Where a peer is gone an error is enough: Python ignores the signal, but not in every process.
NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


@compiled
def read_all(fds: Numbers, address: int, room: int, share: int, found: Numbers) -> int:
    """Read from these non-blocking sockets, one after the other, to the `room` bytes at `address`.

    Up to `share` bytes each. `found` gets how many came: 0 where the peer has ended, -1 where there
    was nothing or an error, NOT_READ for a negative socket, and for those for which no room was
    left. How many were read of all.
    """
    done = 0
    for number in range(len(fds)):
        found[number] = NOT_READ
        if fds[number] >= 0 and done + share <= room:
            found[number] = _recv(fds[number], address + done, share, 0)
            done += max(0, found[number])
    return done


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
            taken = max(0, _send(fds[number], address + start, size, NO_SIGNAL))
        written[number] = taken
        done += taken
        start = ends[number]
    return done
