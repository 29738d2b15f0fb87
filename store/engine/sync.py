"""What has to reach the disk, noted in the loop's thread and done in another one.

The plan knows files only; it looks at nothing that changes while it runs. Folders come first: a
file is no use after a power cut when its name is lost.
"""

from dataclasses import dataclass, field
from pathlib import Path

from ..files.segment import Segment, sync_folder
from ..index.index_file import IndexFile
from ..queues.batch_queue import BatchQueue
from ..queues.consume_queue import ConsumeQueue


@dataclass(slots=True)
class SyncPlan:
    """A sync: `segments` of the log, then `queue_segments` and index.

    When it is through, the log is durable up to `log_end`. `queues` are those fully covered, each
    with the end that is then on disk. `covers_all` says that no queue was left out; then queues and
    index are on disk for all messages before `synced_end`.
    """

    log_end: int
    log_ms: int
    segments: list[Segment] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    queue_segments: list[Segment] = field(default_factory=list)
    queues: list[tuple[ConsumeQueue | BatchQueue, int]] = field(default_factory=list)
    covers_all: bool = False
    counts: tuple[int, int] = (-1, -1)  # queues and their entries, when all are covered
    synced_end: int = -1
    index_files: list[IndexFile] = field(default_factory=list)
    index_count: int = 0
    index_name: str = ""
    full_index_ms: int = 0

    def run(self) -> None:
        """Wait for the disk. OSError as the system gives it; may run in any one thread."""
        for folder in dict.fromkeys(self.folders):
            sync_folder(folder)
        for segment in self.segments:
            segment.sync()
        for segment in self.queue_segments:
            segment.sync()
