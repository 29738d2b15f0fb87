"""Which topics a whole group of brokers has deleted.

A topic of a group is on all members, and an administrator deletes it on each. Only once every
member that serves has deleted it, the members that are away have missed a deletion: a topic that
was deleted on one broker alone keeps its messages on the others.
"""

from collections.abc import Iterable

TOPICS_MAX = 10_000  # that some members have deleted and others not


class GroupDeletions:
    """The members that have deleted a topic, as long as others have it."""

    def __init__(self) -> None:
        self._by: dict[str, set[str]] = {}

    def deleted(self, topic: str, member: str, serving: Iterable[str]) -> bool:
        """A member has deleted a topic; whether every member that serves has."""
        by = self._by.setdefault(topic, set())
        by.add(member)
        if by.issuperset(serving):
            del self._by[topic]
            return True
        if len(self._by) > TOPICS_MAX:
            del self._by[next(iter(self._by))]
        return False

    def has(self, topic: str, member: str) -> None:
        """A member has this topic, perhaps again."""
        by = self._by.get(topic)
        if by is not None:
            by.discard(member)
            if not by:
                del self._by[topic]
