"""The table of what is served: every page with its right. What has no row here is not served."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from ..access.rights import Right
from . import pages_audit, pages_cluster, pages_lake, pages_messages, pages_topics
from .request_context import RequestContext

View = Callable[[RequestContext], Awaitable[Mapping[str, Any]]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page(NamedTuple):
    """A page: its path and template, its title, what it shows, and whether the menu has it.

    It needs `right`, for the topic and the group that the parameters `topic` and `group` name where
    these are given. With `of_all` a visitor is refused that may not see every topic and group.
    """

    path: str
    title: str
    view: View
    in_menu: bool = True
    right: Right = Right.VIEW
    topic: str = ""
    group: str = ""
    of_all: bool = False


class Route(NamedTuple):
    """The handler of a path, and the right that it needs. None: it is served without a login."""

    method: str
    path: str
    right: Right | None
    handler: Handler


async def _none(context: RequestContext) -> Mapping[str, Any]:
    return {}


PAGES = (
    Page("overview", "Overview", pages_cluster.overview),
    Page("topics", "Topics", pages_topics.topics),
    Page("topic", "Topic", pages_topics.topic, False, topic="name"),
    Page("groups", "Groups", pages_topics.groups),
    Page("group", "Group", pages_topics.group, False, group="name"),
    Page("member", "Member", pages_topics.member, False, group="group"),
    Page("producers", "Producers", pages_cluster.producers),
    Page("messages", "Messages", pages_messages.messages, topic="topic"),
    Page("message", "Message", pages_messages.message, False, topic="topic"),
    Page("tail", "Live tail", pages_messages.tail, False, topic="topic"),
    Page("dead_letters", "Dead letters", pages_topics.dead_letters),
    Page("scheduled", "Scheduled", pages_messages.scheduled),
    Page("transactions", "Transactions", pages_messages.transactions),
    Page("lake", "Lake", pages_lake.lake),
    Page("brokers", "Brokers", pages_cluster.brokers),
    Page("broker", "Broker", pages_cluster.broker, False),
    Page("access", "Access", pages_cluster.access, of_all=True),
    Page("findings", "Findings", pages_cluster.findings, of_all=True),
    Page("audit", "Audit", pages_audit.audit, right=Right.ADMINISTER),
)
# For programs only.
DATA = (
    Page("history", "", pages_topics.history),
    Page("search", "", pages_messages.found_all, topic="topic"),
)
# In the menu of those who may act; they answer by their own routes.
ACTING = (Page("actions", "Actions", _none), Page("redrives", "Redrives", _none))
# Streams, which are written as they come.
SEARCH = Page("messages", "Search", pages_messages.messages, topic="topic")
TAIL = Page("tail", "Live tail", pages_messages.tail, topic="topic")
