"""Subscriptions: which messages of a topic a consumer wants, and what a broker keeps of filters."""

from ..message.tags import string_hash
from ..wire import Int32, Int64
from .body import Body

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"

_BLANKS = "".join(map(chr, range(33)))  # what Java's trim takes away


class SubscriptionData(Body):
    """A topic and an expression; for tags also the tags themselves and their hashes.

    `sub_version` is the time in ms at which the consumer made it: a later one replaces it.
    """

    topic: str = ""
    sub_string: str = SUB_ALL
    tags_set: set[str] = set()
    code_set: set[Int32] = set()
    sub_version: Int64 = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    @property
    def takes_all(self) -> bool:
        """True if the subscription takes every message of its topic."""
        return self.sub_string == SUB_ALL


def subscription(
    topic: str, expression: str | None, kind: str | None = TAG, version: int = 0
) -> SubscriptionData:
    """The subscription that an expression stands for; `version` in ms.

    Tags are joined by `||`; nothing and `*` mean all messages. ValueError when tags or an
    expression of another kind are missing.
    """
    if kind is not None and kind != TAG:
        if not expression:
            raise ValueError(
                f"the {kind} expression for topic {topic} is empty; give one, or subscribe by TAG"
            )
        return SubscriptionData(topic, expression, sub_version=version, expression_type=kind)
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, sub_version=version)
    tags = {tag for piece in expression.split("||") if (tag := piece.strip(_BLANKS))}
    if not tags:
        raise ValueError(
            f"the tag expression {expression!r} for topic {topic} has no tag; "
            "write tags as 'a || b', or '*' for all messages"
        )
    return SubscriptionData(topic, expression, tags, {string_hash(tag) for tag in tags}, version)


class BloomFilterData(Body):
    """The bits of one group in a bloom filter of `bit_num` bits."""

    bit_num: Int32 = 0
    bit_pos: list[Int32] = []


class ConsumerFilterData(Body):
    """The expression of one group for one topic. Times in ms.

    It is dead, because its consumers have left, when `dead_time` is not before `born_time`.
    `client_version` is the sub_version of the subscription that it came with.
    """

    consumer_group: str = ""
    topic: str = ""
    expression: str = ""
    expression_type: str = ""
    born_time: Int64 = 0
    dead_time: Int64 = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: Int64 = 0

    @property
    def is_dead(self) -> bool:
        """True if the group's consumers have left."""
        return self.dead_time >= self.born_time


class FilterDataMapByTopic(Body):
    """The filters of one topic by group."""

    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str = ""


class ConsumerFilterWrapper(Body):
    """All filters of a broker by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}
