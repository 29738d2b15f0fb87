"""The console in a real browser, on a real RocketMQ cluster: the journeys of a visitor, every page,
a live view, login, and a broker that is killed. With access control they are in
test_console_actions.py."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.client import Admin
from aerobee.scripts.harness.clusters import JavaCluster

from ..console.web.site import Site
from ..console.web.test_actions_browser import CHROMIUM, page
from ..console.web.test_browser import (
    Visitor,
    browser,
    logs_in_and_the_session_ends,
    refreshed,
    users,
)
from .console_journeys import Journey
from .support import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
__all__ = ["browser", "page", "refreshed"]  # fixtures


@pytest.fixture
async def journey(page: Any, java_cluster: JavaCluster) -> AsyncIterator[Journey]:
    # The samples of a real broker take half a minute, as they use a twentieth of its time.
    async with Site({"main": java_cluster.namesrv}, is_sampled=False) as site:
        await page.goto(site.console.new_link())
        yield Journey(page, site, java_cluster.namesrv)


async def test_from_sent_to_dead_to_redriven_to_processed(journey: Journey) -> None:
    await journey.from_sent_to_dead_to_redriven_to_processed()


async def test_a_scheduled_message_is_cancelled(journey: Journey) -> None:
    await journey.a_scheduled_message_is_cancelled()


async def test_an_offline_group_is_reset(journey: Journey) -> None:
    await journey.an_offline_group_is_reset()


async def test_every_page_and_a_live_view_of_a_real_cluster(journey: Journey) -> None:
    await journey.every_page_and_a_live_view()


async def test_a_visitor_logs_in_and_the_session_ends_under_an_open_page(
    browser: Any, refreshed: None, java_cluster: JavaCluster
) -> None:
    address = java_cluster.namesrv
    async with Admin(address) as admin:
        await admin.create_topic("Visited", 1)
    async with Site({"main": address}, users=users(), is_sampled=False) as site:
        found = site.console.clusters.by_name["main"].collector
        await until(lambda: "Visited" in found.topics())
        await logs_in_and_the_session_ends(Visitor(await browser.new_page(), site), "Visited")


async def test_a_broker_is_killed_under_an_open_page(
    refreshed: None, journey: Journey, java_cluster: JavaCluster
) -> None:
    await journey.a_broker_is_killed_under_an_open_page(java_cluster)
