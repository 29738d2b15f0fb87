"""What a broker keeps of its consumers' property filters: consumerFilter.json."""

from ..wire import Int32, Int64
from .body import Body


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
        """Whether its consumers have left."""
        return self.dead_time >= self.born_time


class FilterDataMapByTopic(Body):
    """The filters of one topic by group."""

    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str = ""


class ConsumerFilterWrapper(Body):
    """All filters of a broker by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}
