"""Topics that the other members of a group of brokers deleted while this one was away.

Each is an empty file of its name in the folder config/deletedTopics of the broker's store. The
supervisor of the group adds them (scripts/processes); the broker deletes the topics at its start,
before it serves any client, so no message can have come to them since.
"""

from pathlib import Path

FOLDER = "deletedTopics"
TOPICS_MAX = 10_000


class MissedDeletions:
    """The deletions that the broker of a store folder has missed."""

    def __init__(self, store_dir: Path) -> None:
        self._folder = store_dir / "config" / FOLDER

    def add(self, topic: str) -> None:
        """Note a topic; OSError where that can't be done, or where there are too many."""
        self._folder.mkdir(parents=True, exist_ok=True)
        count = len(self.topics())
        if count >= TOPICS_MAX:
            raise OSError(f"{self._folder} has {count} topics, the limit is {TOPICS_MAX}")
        (self._folder / topic).touch()

    def topics(self) -> list[str]:
        """The topics that are to be deleted."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir())

    def done(self, topic: str) -> None:
        """Note that the topic is deleted."""
        (self._folder / topic).unlink(missing_ok=True)
