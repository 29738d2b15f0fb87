"""A store as data: its queues as numpy arrays, its messages as Arrow batches. It only reads.

The folder may be in use by an aerobee or Java broker. Data that is cut off or damaged raises an
error and is never returned. A view knows the files that existed when it was made or refreshed; each
call looks up again where a queue ends in them. Arrow is imported only when rows are asked for;
`pip install "aerobee[spark]"` installs it.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...protocol.names import LMQ_PREFIX
from ..base.errors import ArrowMissing, PolarsMissing, StoreError
from ..files import checkpoint
from ..files.listing import Row, queue_folders
from ..log.chunk import Chunk
from .queue_view import BatchQueueView, QueueView, SimpleQueueView

if TYPE_CHECKING:
    from .frames import DataFrame
    from .messages import Batch, Schema

PIECE_MESSAGES_MAX = 8_192  # Spark's own Arrow batches have 10,000 rows
PIECE_BYTES_MAX = 8 << 20  # or one message


class StoreView:
    """A store folder, read only.

    `root` is the broker's storePathRootDir, `log_folder` its storePathCommitLog where that is
    another folder. StoreError where there is no store. A view knows the files that existed when it
    was made; `refresh` lists them again. With `topic` it has the queues of this topic only, and is
    made at once where a store has many.
    """

    def __init__(
        self,
        root: Path | str,
        log_folder: Path | str | None = None,
        *,
        topic: str | None = None,
    ) -> None:
        """StoreError when there is no store."""
        self.root = Path(root)
        self._topic = topic
        self._log_folder = Path(log_folder) if log_folder else self.root / "commitlog"
        if not self._log_folder.is_dir():
            raise StoreError(
                f"{self.root} is no store: it has no folder {self._log_folder.name}; give the "
                "folder that the broker has as storePathRootDir"
            )
        self.refresh()

    def refresh(self) -> None:
        """List the existing files again."""
        sizes = checkpoint.load(self.root / "checkpoint")
        self.log = Row(self._log_folder, sizes.segment_bytes)
        self._queues: dict[tuple[str, int], QueueView] = {}
        kinds: list[tuple[type[QueueView], int]] = [
            (SimpleQueueView, sizes.queue_file_bytes),
            (BatchQueueView, sizes.batch_queue_file_bytes),
        ]
        for kind, size in kinds:
            for topic, queue_id, folder in queue_folders(self.root / kind.folder, self._topic):
                row = Row(folder, size, kind.unit_bytes)
                self._queues[topic, queue_id] = kind(topic, queue_id, row, self.log)

    def topics(self) -> dict[str, list[int]]:
        """Every topic with a queue, and the ids of its queues."""
        found: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._queues):
            found.setdefault(topic, []).append(queue_id)
        return found

    def queue(self, topic: str, queue_id: int) -> QueueView:
        """One queue. StoreError when there is none."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            raise StoreError(
                f"the store {self.root} has no queue {queue_id} of topic {topic}; it has "
                f"{self.topics().get(topic, 'no queue of it at all')}"
            )
        return found

    def entries(
        self, topic: str, queue_id: int, start: int | None = None, end: int | None = None
    ) -> NDArray[np.void]:
        """The entries of the messages with offsets [start, end) as an array with named fields.

        `offset` in the log, `size` in bytes and `tags` (the hash) of a consume queue; a batch queue
        has one entry per record and more fields. Entries from one file are a view of its mapping,
        not a copy.
        """
        return self.queue(topic, queue_id).entries(start, end)

    def chunks(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        end: int | None = None,
        *,
        messages_max: int = PIECE_MESSAGES_MAX,
        bytes_max: int = PIECE_BYTES_MAX,
    ) -> Iterator[Chunk]:
        """The records of the offsets [start, end), a bounded chunk at a time and without a gap.

        A chunk has the form of a pull's result, which `spark/decode.py` and `batches` read.
        MessagesGone when part of the range is deleted, DamagedStore when a record is not whole,
        ArrowMissing.
        """
        _check_arrow()
        from . import messages

        queue = self.queue(topic, queue_id)
        yield from messages.chunks(queue, start, end, messages_max, bytes_max)

    def batches(
        self,
        topic: str,
        queue_id: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        messages_max: int = PIECE_MESSAGES_MAX,
        bytes_max: int = PIECE_BYTES_MAX,
    ) -> "Iterator[Batch]":
        """The messages with offsets [start, end) of a queue, as Arrow batches of bounded size.

        Without `queue_id`, of each queue of the topic, one queue after the other. Bodies are
        unpacked. A message of a light queue (%LMQ%) has the topic, queue and offset of the queue
        that it was sent to. `columns` are names from `schema()`; None means all. Raises as
        `chunks`; ValueError for an unknown column, StoreError for an unknown topic.
        """
        _check_arrow()
        from . import messages

        schema = messages.schema_of(columns)
        is_light = topic.startswith(LMQ_PREFIX)
        for each in self._queue_ids(topic) if queue_id is None else [queue_id]:
            for chunk in self.chunks(
                topic, each, start, end, messages_max=messages_max, bytes_max=bytes_max
            ):
                yield messages.batch(chunk, schema, all_rows=is_light)

    def to_polars(
        self,
        topic: str,
        queue_id: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> "DataFrame":
        """The rows of `batches` in one polars DataFrame, all of them in memory.

        PolarsMissing where polars is not installed; raises as `batches`.
        """
        if find_spec("polars") is None:
            raise PolarsMissing(
                "a DataFrame needs polars, which is not installed; run "
                "pip install 'aerobee[polars]', or take the Arrow batches of batches()"
            )
        from . import frames

        found = self.batches(topic, queue_id, start, end, columns=columns)
        return frames.to_polars(found, self.schema(columns))

    def _queue_ids(self, topic: str) -> list[int]:
        found = self.topics().get(topic)
        if found is None:
            near = ", ".join(get_close_matches(topic, self.topics(), 3)) or "topics() lists them"
            raise StoreError(f"the store {self.root} has no queue of topic {topic}; {near}")
        return found

    def schema(self, columns: Sequence[str] | None = None) -> "Schema":
        """The columns of `batches`."""
        _check_arrow()
        from . import messages

        return messages.schema_of(columns)

    def release(self) -> None:
        """Drop all mappings; arrays returned before stay valid."""
        self.log.release()
        for queue in self._queues.values():
            queue.row.release()


def _check_arrow() -> None:
    if find_spec("pyarrow") is None:
        raise ArrowMissing(
            "the rows of a store need pyarrow, which is not installed; run "
            "pip install 'aerobee[spark]'"
        )
