"""All consume queues of a store, by topic and queue id."""

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...protocol.names import LMQ_PREFIX
from ...protocol.open_files import open_files_max
from ..base.errors import DamagedStore, StoreError, readable_errors
from ..base.settings import StoreSettings
from ..files import disk
from ..files.segments import warn_of
from .batch_queue import BatchQueue
from .consume_queue import ConsumeQueue
from .queue_ext import QueueExt

log = logging.getLogger(__name__)

Queue = ConsumeQueue | BatchQueue
Key = tuple[str, int]

QUEUES_MAX = 1_000_000
# With more queues, idle ones are not kept mapped; nor do they take more than a quarter of the open
# files that the process may have.
QUEUES_MAPPED_MAX = 8_000
QUEUE_ID_MAX = 1 << 20
TOPIC_CHARS_MAX = 255  # a record keeps the length of its topic in one byte, or is version 2
_LEGAL = re.compile(r"[%|+a-zA-Z0-9_-]+")


class Queues:
    """All queues: `simple` (consume queues) and `batch`, by (topic, queue id)."""

    def __init__(self, root: Path, settings: StoreSettings) -> None:
        self._settings = settings
        self._folder = root / "consumequeue"
        self._batch_folder = root / "batchconsumequeue"
        self._ext_folder = root / "consumequeue_ext"
        self.simple: dict[Key, ConsumeQueue] = {}
        self.batch: dict[Key, BatchQueue] = {}
        self._ext: dict[Key, QueueExt] = {}
        self.light = 0  # light queues among them

    def load(self, *, is_clean: bool, sure: bool = False, sure_batch: bool = False) -> None:
        """Open every queue that has a folder; `sure` and `sure_batch` as in `Segments.load`."""
        for topic, queue_id, _ in _folders(self._folder):
            self.make(topic, queue_id).load(is_clean=is_clean, sure=sure)
        for topic, queue_id, folder in _folders(self._batch_folder):
            if (topic, queue_id) in self.simple:
                raise DamagedStore(
                    f"topic {topic} has both {folder} and a consume queue; remove the wrong one"
                )
            self.make_batch(topic, queue_id).load(is_clean=is_clean, sure=sure_batch)
        for topic, queue_id, folder in _folders(self._ext_folder):
            try:
                self._ext[topic, queue_id] = QueueExt(folder, self._settings.queue_ext_file_bytes)
            except DamagedStore as wrong:  # clients filter what has no tag hash here
                log.error("%s; the tags of some messages of this queue are not known", wrong)
        warn_of([stray for queue in self.all() for stray in queue.segments.strays])

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new, empty one if there was none. No file is made yet.

        StoreError for an illegal name or too many queues.
        """
        found = self.simple.get((topic, queue_id))
        if found is None:
            folder = self._checked(self._folder, topic, queue_id)
            found = ConsumeQueue(folder, topic, queue_id, self._settings.queue_file_bytes)
            found.is_special = self._settings.append_crc
            self.simple[topic, queue_id] = found
            self.light += topic.startswith(LMQ_PREFIX)
        return found

    def make_batch(self, topic: str, queue_id: int) -> BatchQueue:
        """The batch queue; a new, empty one if there was none. StoreError as `make`."""
        found = self.batch.get((topic, queue_id))
        if found is None:
            folder = self._checked(self._batch_folder, topic, queue_id)
            found = BatchQueue(folder, topic, queue_id, self._settings.batch_queue_file_bytes)
            self.batch[topic, queue_id] = found
        return found

    def drop_deleted(self, ends: Mapping[str, int]) -> None:
        """Drop the queues of deleted topics; `ends` has where the log ended then, by topic.

        A power cut or a crash during the deletion can leave their files.
        """
        for queue in [queue for queue in self.all() if queue.topic in ends]:
            if queue.segments.items and queue.log_end <= ends[queue.topic]:
                group = self.batch if queue.is_batch else self.simple
                del group[queue.topic, queue.queue_id]
                self.light -= queue.topic.startswith(LMQ_PREFIX)
                queue.segments.delete()

    def counts(self, log_end: int | None = None) -> tuple[int, int]:
        """The numbers of queues with a file and of their entries in all, or of the entries of
        messages before `log_end`."""
        used = [queue for queue in self.all() if queue.segments.items]
        if log_end is None:
            return len(used), sum(queue.next for queue in used)
        return len(used), sum(queue.readable_end(log_end) for queue in used)

    @property
    def is_mended(self) -> bool:
        """True if a file was replaced or lengthened with zeros when the queues were opened."""
        return any(queue.segments.is_mended for queue in self.all())

    @property
    def first_entries(self) -> int:
        """The sum of the queues' first bytes in files: how much was deleted with old files."""
        return sum(queue.segments.start for queue in self.all())

    def find(self, topic: str, queue_id: int) -> Queue | None:
        """The queue of either kind, or None."""
        key = (topic, queue_id)
        return self.simple.get(key) or self.batch.get(key)

    def all(self) -> Iterator[Queue]:
        """Every queue."""
        yield from self.simple.values()
        yield from self.batch.values()

    def ext_tags_code(self, topic: str, queue_id: int, address: int) -> int | None:
        """The tag hash at the address in an entry; None if there is none."""
        ext = self._ext.get((topic, queue_id))
        return None if ext is None else ext.tags_code(address)

    def ext(self, topic: str, queue_id: int) -> QueueExt | None:
        """The extension of a consume queue, where a Java broker has written one."""
        return self._ext.get((topic, queue_id))

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic with their files."""
        for group in (self.simple, self.batch):
            for key in [key for key in group if key[0] == topic]:
                queue = group.pop(key)
                self.light -= topic.startswith(LMQ_PREFIX)
                queue.segments.delete()
                queue.release()  # readers may still hold it
        for folder in (self._folder, self._batch_folder):
            path = folder / topic
            with readable_errors(path, "delete"):
                if disk.current.is_folder(path) and not disk.current.entries(path):
                    disk.current.remove_folder(path)

    def trim(self) -> None:
        """Drop the mappings of idle queues if there are very many queues: each mapping uses a file
        descriptor.

        A mapping is made again when its queue is used.
        """
        if len(self.simple) + len(self.batch) > min(QUEUES_MAPPED_MAX, open_files_max() // 4):
            for queue in self.all():
                if queue.next == queue.synced:
                    queue.release()

    def release(self) -> None:
        """Drop all mappings."""
        for queue in self.all():
            queue.release()

    def _checked(self, folder: Path, topic: str, queue_id: int) -> Path:
        """The folder of a queue. StoreError for a name that could lead elsewhere, or when there are
        `QUEUES_MAX` queues."""
        if len(topic) > TOPIC_CHARS_MAX or _LEGAL.fullmatch(topic) is None:
            raise StoreError(
                f"topic {topic[:TOPIC_CHARS_MAX]!r} can't be stored: a name has 1 to "
                f"{TOPIC_CHARS_MAX} of the characters a-z A-Z 0-9 _ - % | +"
            )
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            raise StoreError(f"queue id {queue_id} is not between 0 and {QUEUE_ID_MAX}")
        if len(self.simple) + len(self.batch) >= QUEUES_MAX:
            raise StoreError(f"the store has {QUEUES_MAX} queues, no more fit; delete topics")
        return folder / topic / str(queue_id)


def is_legal(topic: str, queue_id: int) -> bool:
    """True if a queue can have this topic and id; a record with other ones is damaged."""
    return (
        0 <= queue_id <= QUEUE_ID_MAX
        and len(topic) <= TOPIC_CHARS_MAX
        and _LEGAL.fullmatch(topic) is not None
    )


def _folders(root: Path) -> list[tuple[str, int, Path]]:
    """Topic, queue id and folder of each queue below a folder."""
    found = []
    with readable_errors(root, "read"):
        if not disk.current.is_folder(root):
            return []
        for topic in disk.current.entries(root):
            if not topic.is_folder:
                continue
            for queue in disk.current.entries(root / topic.name):
                if queue.is_folder and queue.name.isascii() and queue.name.isdigit():
                    found.append((topic.name, int(queue.name), root / topic.name / queue.name))
    return found
