"""The texts of pop that clients see: handles, offset infos, names of retry topics.

A handle (POP_CK, extraInfo) says where a popped message is and when it was popped; a client needs
it to acknowledge the message. Its words, with one space between them: start offset of the check
point, pop time, invisible time (ms), revive queue, retry flag, broker, queue id, queue offset.
Further words are ignored: RocketMQ's proxy appends the message's log offset. The retry flag is 0
for a message of the topic itself, 1 and 2 for one of the two forms of retry topic. Infos are
entries of three words, joined by semicolons.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..names import RETRY_PREFIX

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
ORDER_REVIVE_QUEUE = 999  # instead of a revive queue: the message was popped in order
SEPARATOR_V1, SEPARATOR_V2 = "_", "+"
WORDS_MIN = 7
WORD_CHARS_MAX = 20  # of a number


class Handle(NamedTuple):
    """A parsed handle. Times in ms; `offset` is -1 in handles that name a whole queue."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def is_order(self) -> bool:
        """True if the message was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE


def parse_handle(text: str) -> Handle:
    """Parse a handle; ValueError saying what is wrong with the text."""
    words = text.split(" ")
    if len(words) < WORDS_MIN:
        raise ValueError(f"it has {len(words)} words, a handle has at least {WORDS_MIN}")
    start, pop_ms, invisible_ms, revive_queue_id, retry, broker_name, queue_id, *rest = words
    if retry not in (NORMAL, RETRY_V1, RETRY_V2):
        raise ValueError(f"its retry flag is {retry[:WORD_CHARS_MAX]!r}, it must be 0, 1 or 2")
    return Handle(
        _number("start offset", start),
        _number("pop time", pop_ms),
        _number("invisible time", invisible_ms),
        _number("revive queue", revive_queue_id),
        retry,
        broker_name,
        _number("queue id", queue_id),
        _number("queue offset", rest[0]) if rest else -1,
    )


def handle(
    start_offset: int,
    pop_ms: int,
    invisible_ms: int,
    revive_queue_id: int,
    retry: str,
    broker_name: str,
    queue_id: int,
    offset: int,
) -> str:
    """The text of a handle."""
    return (
        f"{start_offset} {pop_ms} {invisible_ms} {revive_queue_id} {retry} {broker_name} "
        f"{queue_id} {offset}"
    )


def start_offset_info(retry: str, queue_id: int, start_offset: int) -> str:
    """An entry of startOffsetInfo."""
    return f"{retry} {queue_id} {start_offset}"


def msg_offset_info(retry: str, queue_id: int, offsets: Iterable[int]) -> str:
    """An entry of msgOffsetInfo: the queue offsets of the messages."""
    return f"{retry} {queue_id} {','.join(map(str, offsets))}"


def order_count_info(
    retry: str, queue_id: int, offsets: Sequence[int], counts: dict[int, int]
) -> str:
    """The entries of orderCountInfo for one queue: how often each message was popped before.

    Messages that never were have no entry. The last entry is the smallest count of all messages,
    for clients that know only one count per queue.
    """
    entries = [f"{retry} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
    return ";".join([*entries, f"{retry} {queue_id} {least}"])


def entries_of(info: str | None) -> dict[tuple[str, str], str]:
    """The entries of an info: the third word by the two before it."""
    found = {}
    for entry in (info or "").split(";"):
        if entry:
            retry, key, value = entry.split(" ")
            found[retry, key] = value
    return found


def retry_flag(topic: str) -> str:
    """The retry flag of messages popped from this topic."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if SEPARATOR_V2 in topic else RETRY_V1


def retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """The retry topic for messages that a group popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}{SEPARATOR_V2 if v2 else SEPARATOR_V1}{topic}"


def real_topic(topic: str, group: str, retry: str) -> str:
    """The topic that has a message with this retry flag. ValueError for an unknown flag."""
    if retry == NORMAL:
        return topic
    if retry not in (RETRY_V1, RETRY_V2):
        raise ValueError(f"the retry flag is {retry[:WORD_CHARS_MAX]!r}, it must be 0, 1 or 2")
    return retry_topic(topic, group, v2=retry == RETRY_V2)


def normal_topic(topic: str, group: str) -> str:
    """The topic that a retry topic belongs to; any other topic itself."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    return topic[len(RETRY_PREFIX) + len(group) + 1 :]


def _number(what: str, word: str) -> int:
    if not word.isascii() or not word.isdigit() or len(word) > WORD_CHARS_MAX:
        raise ValueError(f"its {what} is {word[:WORD_CHARS_MAX]!r}, it must be a number")
    number = int(word)
    if number >= 1 << 63:
        raise ValueError(f"its {what} is {number}, which is over 2^63 - 1")
    return number
