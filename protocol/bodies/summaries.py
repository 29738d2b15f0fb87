"""What an aerobee broker tells about all its topics or groups, a page at a time.

A figure that is None is not known. Times are in ms since 1970 by the broker's clock, rates are
messages a second over the last minute.
"""

from ..wire import Int32, Int64
from .body import Body


class TopicSummary(Body):
    """A topic on one broker. `messages` are those it still has; `first_ms` and `last_ms` are when
    the first and the last of them were stored; `puts` counts since the broker's start."""

    topic: str = ""
    read_queues: Int32 = 0
    write_queues: Int32 = 0
    perm: Int32 = 0
    message_type: str | None = None
    messages: Int64 | None = None
    first_ms: Int64 | None = None
    last_ms: Int64 | None = None
    puts: Int64 | None = None
    put_tps: float | None = None


class TopicSummaries(Body):
    """A page in the order of names; the next one is behind `next`, None at the end."""

    topics: list[TopicSummary] = []
    next: str | None = None


class GroupTopicSummary(Body):
    """The progress of a group in one topic on one broker.

    `lag` are messages that it has not consumed, `in_flight` those of them that a member has;
    `lag_ms` is the age of the first of them. `is_retry`: the messages are in a retry topic.
    `lag_is_at_most`: messages that the group's filter skips may be counted.
    """

    topic: str = ""
    is_retry: bool = False
    lag: Int64 | None = None
    in_flight: Int64 | None = None
    lag_ms: Int64 | None = None
    get_tps: float | None = None
    lag_is_at_most: bool = False


class GroupSummary(Body):
    """A group on one broker. `members` are those with a connection, `dead_letters` the messages
    of its dead letter topic, `differing` says how the subscriptions of members differ."""

    group: str = ""
    consume_enable: bool | None = None
    members: Int32 | None = None
    consume_type: str | None = None
    message_model: str | None = None
    dead_letters: Int64 | None = None
    differing: str | None = None
    topics: list[GroupTopicSummary] = []


class GroupSummaries(Body):
    """A page in the order of names; the next one is behind `next`, None at the end."""

    groups: list[GroupSummary] = []
    next: str | None = None
