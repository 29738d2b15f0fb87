"""Who gets which queue: the strategies, pure functions that every member computes for itself.

All members see the same queues and ids in the same order, so they agree without talking. A strategy
gets the member's own id, the sorted queues of one topic and the sorted ids of the group's members,
and gives the member's queues.
"""

from collections.abc import Callable, Iterable, Sequence

from .bodies.body import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def sort_ids(ids: Iterable[str]) -> list[str]:
    """Client ids without repeats, in the order of Java's strings: by UTF-16 units."""
    return sorted(set(ids), key=lambda text: text.encode("utf-16-be", "surrogatepass"))


def average(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
    """AVG: a run of neighbours each; the first members get one more when it doesn't come out."""
    if me not in ids:
        return []
    index, members = ids.index(me), len(ids)
    each, more = divmod(len(queues), members)
    start = index * each + min(index, more)
    return list(queues[start : start + each + (index < more)])


def circle(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: dealt out like cards."""
    if me not in ids:
        return []
    return list(queues[ids.index(me) :: len(ids)])


# By the names that Java's classes give for themselves.
STRATEGIES: dict[str, Strategy] = {"AVG": average, "AVG_BY_CIRCLE": circle}
