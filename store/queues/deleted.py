"""Deleted topics, and where the log ended when they were deleted.

A deleted topic's messages stay in the log until their file is deleted. Whenever queues are made
from the log, messages of the topic before that end are skipped, so no crash restores the topic.
"""

import json
from pathlib import Path

from ..base.errors import StoreError
from ..files import json_file

DELETED_MAX = 100_000  # topics in the table


class Deleted:
    """The table, kept in config/deletedTopics.json. `ends` is by topic."""

    def __init__(self, root: Path) -> None:
        self._path = root / "config" / "deletedTopics.json"
        self.ends: dict[str, int] = {}

    def load(self) -> None:
        """Read the file. DamagedStore when neither it nor its .bak can be read."""
        self.ends = json_file.load(self._path, _decode) or {}

    def note(self, topic: str, log_end: int, log_start: int) -> None:
        """Note that messages of this topic before `log_end` are deleted; on the disk on return.

        Topics without messages in the log, which begins at `log_start`, are forgotten. StoreError
        above `DELETED_MAX` topics.
        """
        kept = {name: end for name, end in self.ends.items() if end > log_start}
        kept[topic] = log_end
        if len(kept) > DELETED_MAX:
            raise StoreError(
                f"topic {topic} can't be deleted: the log still has messages of {DELETED_MAX} "
                "deleted topics, and no more are kept track of; wait until old files are gone"
            )
        self._save(kept)

    def cut_at_log(self, log_end: int) -> None:
        """Note that the log ends at `log_end` after a crash: behind it, messages will be new."""
        if any(end > log_end for end in self.ends.values()):
            self._save({topic: min(end, log_end) for topic, end in self.ends.items()})

    def _save(self, ends: dict[str, int]) -> None:
        json_file.save(self._path, json.dumps(ends))
        self.ends = ends


def _decode(data: bytes) -> dict[str, int]:
    return {str(topic): int(end) for topic, end in json.loads(data).items()}
