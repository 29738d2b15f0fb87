"""Headers about consumer groups as the broker keeps them, and of our pages of summaries."""

from ..wire import Header, Int32, field


class DeleteGroup(Header):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group: str = field(name="groupName")
    clean_offset: bool = field(name="cleanOffset", default=False)


class GroupName(Header):
    """343, 352: one group."""

    group: str


class GroupTopic(Header):
    """345: one group, perhaps one topic."""

    group: str
    topic: str | None = None


class ConsumeStats(Header):
    """GET_CONSUME_STATS (208). `topics` is a list separated by semicolons."""

    group: str = field(name="consumerGroup")
    topic: str | None = None
    topics: str | None = field(name="topicList", default=None)


class BrokerConsumeStats(Header):
    """GET_BROKER_CONSUME_STATS (317)."""

    order: bool = field(name="isOrder", default=False)


class StatsData(Header):
    """VIEW_BROKER_STATS_DATA (315)."""

    name: str = field(name="statsName")
    key: str = field(name="statsKey")


class CloneGroupOffset(Header):
    """CLONE_GROUP_OFFSET (314)."""

    source: str = field(name="srcGroup")
    target: str = field(name="destGroup")
    topic: str | None = None
    offline: bool = False


class ConfigVersion(Header):
    """The answer to GET_BROKER_CONFIG (26): the DataVersion as JSON text."""

    version: str


class SummaryPage(Header):
    """GET_TOPIC_SUMMARIES (900001), GET_GROUP_SUMMARIES (900002): up to `count` rows whose names
    sort behind `after`."""

    after: str = ""
    count: Int32 = 200
