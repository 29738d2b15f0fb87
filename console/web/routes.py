"""The table of what is served: every page with its right. What has no row here is not served."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from ..access.rights import Right
from . import pages_audit, pages_brokers, pages_cluster, pages_lake, pages_messages, pages_topics
from .request_context import RequestContext

View = Callable[[RequestContext], Awaitable[Mapping[str, Any]]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page(NamedTuple):
    """A page: its path and template, its title, what it shows, and its place in the menu.

    A page of the menu has the heading `section` there; another one is reached from the page
    `parent`. It needs `right`, for the topic and the group that the parameters `topic` and `group`
    name where these are given. With `of_all` a visitor is refused that may not see every topic and
    group.
    """

    path: str
    title: str
    view: View
    section: str = ""
    parent: str = ""
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
    Page("topics", "Topics", pages_topics.topics, "Data"),
    Page("topic", "Topic", pages_topics.topic, parent="topics", topic="name"),
    Page("messages", "Messages", pages_messages.messages, "Data", topic="topic"),
    Page("message", "Message", pages_messages.message, parent="messages", topic="topic"),
    Page("tail", "Live tail", pages_messages.tail, parent="messages", topic="topic"),
    Page("dead_letters", "Dead letters", pages_messages.dead_letters, "Data", group="group"),
    Page("scheduled", "Scheduled", pages_messages.scheduled, "Data"),
    Page("transactions", "Transactions", pages_messages.transactions, "Data"),
    Page("lake", "Lake", pages_lake.lake, "Data"),
    Page("groups", "Groups", pages_topics.groups, "Clients"),
    Page("group", "Group", pages_topics.group, parent="groups", group="name"),
    Page("member", "Member", pages_topics.member, parent="groups", group="group"),
    Page("producers", "Producers", pages_cluster.producers, "Clients"),
    Page("brokers", "Brokers", pages_brokers.brokers, "Cluster"),
    Page("broker", "Broker", pages_brokers.broker, parent="brokers"),
    Page("access", "Access", pages_cluster.access, "Cluster", of_all=True),
    Page("findings", "Findings", pages_cluster.findings, "Cluster", of_all=True),
    Page("audit", "Audit", pages_audit.audit, "Cluster", right=Right.ADMINISTER),
)
# For programs only.
DATA = (
    Page("history", "", pages_topics.history),
    Page("search", "", pages_messages.found_all, topic="topic"),
)
# In the menu of those who may act; they answer by their own routes.
ACTING = (
    Page("actions", "Actions", _none, "Cluster"),
    Page("redrives", "Redrives", _none, "Cluster"),
)
# Streams, which are written as they come.
SEARCH = Page("messages", "Messages", pages_messages.messages, topic="topic")
TAIL = Page("tail", "Live tail", pages_messages.tail, topic="topic")
# The page of the menu that each other page belongs to, by template.
PARENTS = {page.path: page.parent for page in PAGES if page.parent} | {
    "act_form": "actions",
    "act_preview": "actions",
    "act_result": "actions",
    "definitions": "actions",
    "redrive": "redrives",
}
