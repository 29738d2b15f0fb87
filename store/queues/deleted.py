"""Topics that were deleted, and where the log ended then.

A deleted topic's messages stay in the log until their file goes. Whenever queues are made from the
log, what lies before that end is passed over, so that no crash brings a deleted topic back.
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
        """Messages of this topic before `log_end` are gone; on the disk when this returns.

        Those whose messages the log has no more, as it begins at `log_start`, are forgotten.
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
        """The log ends here after a crash: new messages will lie where deleted ones have lain."""
        if any(end > log_end for end in self.ends.values()):
            self._save({topic: min(end, log_end) for topic, end in self.ends.items()})

    def _save(self, ends: dict[str, int]) -> None:
        json_file.save(self._path, json.dumps(ends))
        self.ends = ends


def _decode(data: bytes) -> dict[str, int]:
    return {str(topic): int(end) for topic, end in json.loads(data).items()}
