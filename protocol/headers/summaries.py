"""The header of our requests for summaries."""

from ..wire import Header, Int32


class SummaryPage(Header):
    """GET_TOPIC_SUMMARIES (900001), GET_GROUP_SUMMARIES (900002): up to `count` rows whose names
    sort behind `after`."""

    after: str = ""
    count: Int32 = 200
