"""The inner loops of the store that exist both interpreted and compiled."""

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..files.segment import Segment

Buffer = bytes | memoryview
Numbers = NDArray[np.int64]


class RunKernels(Protocol):
    """The inner loops of reading a run of records."""

    def whole(self, data: bytes, place: int) -> tuple[Numbers, int]:
        """The starts of the whole records that lie side by side from the first byte of `data` on,
        and the end of the last. `data` lies at `place` of the log, as each record says, and each
        body has its crc.
        """

    def joined(
        self, data: bytes, starts: Numbers, ends: Numbers
    ) -> tuple[NDArray[np.uint8], Numbers]:
        """Join these texts of `data`, each with a separator of properties behind it. Returns the
        joined bytes and their bounds, as `PropertyTable` takes both.
        """

    def hashes(self, data: NDArray[np.uint8], starts: Numbers, ends: Numbers, out: Numbers) -> bool:
        """Replace each hash in `out`, of 32 bits, by the hash of its text followed by
        `data[start:end]`. False if one of these texts is not ASCII: `out` is useless then.
        """


class Kernels(Protocol):
    """One implementation of the inner loops; `MessageStore` gets it as an argument."""

    @property
    def runs(self) -> RunKernels | None:
        """The kernels of reading runs; None where numpy does it."""

    def gather(
        self, queue: "Segment", at: int, count: int, log: "Segment", bytes_max: int
    ) -> Buffer | None:
        """The records that `count` entries of a queue file name, from byte `at` of it on.

        Records that are neighbours in the log come as a view of it, others as one copy. None when
        a record lies in another file than `log`, or when they exceed `bytes_max` bytes.
        """

    def index_insert(
        self,
        memory: NDArray[np.uint8],
        slot_count: int,
        count: int,
        hashes: Numbers,
        offsets: Numbers,
        seconds: Numbers,
    ) -> int:
        """Write these keys into an index file as entries `count` and following, each the newest of
        its slot. `memory` is the whole file. Returns the number of slots that were empty before.
        """
