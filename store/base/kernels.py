"""The inner loops of the store that exist both interpreted and compiled."""

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..files.segment import Segment

Buffer = bytes | memoryview
Numbers = NDArray[np.int64]


class Kernels(Protocol):
    """One implementation of the inner loops; `MessageStore` gets it as an argument."""

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
