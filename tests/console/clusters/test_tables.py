"""The rows of all topics and groups: made in steps, in the order of names, or one at a time."""

import asyncio

from aerobee.console.clusters.samples import BrokerSample, Timed, TimedGroup
from aerobee.console.clusters.tables import Tables
from aerobee.protocol.bodies.summaries import GroupSummary, GroupTopicSummary, TopicSummary

NAMES = [f"T{number:03d}" for number in range(200)]


def broker(name: str) -> BrokerSample:
    """A master with 5 messages in each topic, and a group that reads the first one."""
    found = BrokerSample("c", name, 0, name, has_tables=True)
    found.topics = {one: Timed(1, TopicSummary(one, 1, 1, 6, None, 5)) for one in reversed(NAMES)}
    group = GroupSummary("G", True, 1, topics=[GroupTopicSummary(NAMES[0], False, 3, 0, 9, 1.0)])
    found.groups = {"G": TimedGroup(1, group)}
    return found


async def test_tables_are_the_sums_of_masters_in_the_order_of_names() -> None:
    masters = [broker("a"), broker("b")]
    tables = Tables(lambda: masters, lambda: True)
    steps = 0

    async def other_work() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    await asyncio.gather(tables.refresh(), tables.refresh())
    other.cancel()
    assert steps > 4
    assert list(tables.topics) == NAMES
    assert {row.messages for row in tables.topics.values()} == {10}
    assert [row.groups for row in tables.topics.values()][:2] == [1, 0]
    assert tables.groups["G"].lag == 6


async def test_new_figures_of_one_name_leave_the_rest() -> None:
    master = broker("a")
    tables = Tables(lambda: [master], lambda: True)
    await tables.refresh()
    before = tables.topics[NAMES[1]]
    for name in (NAMES[0], "unknown"):
        master.topics[name] = Timed(2, TopicSummary(name, 1, 1, 6, None, 8))
        tables.topic(name)
    tables.group("unknown")
    assert (tables.topics[NAMES[0]].messages, tables.topics[NAMES[0]].groups) == (8, 1)
    assert tables.topics[NAMES[1]] is before
    assert (len(tables.topics), list(tables.groups)) == (len(NAMES), ["G"])


async def test_the_first_names_are_there_before_all_are_known() -> None:
    master = broker("a")
    tables = Tables(lambda: [master], lambda: False)
    tables.name_topics(NAMES[:3])
    tables.name_groups(["G"])
    assert list(tables.topics) == NAMES[:3]
    assert tables.topics[NAMES[0]].messages is None  # another broker may have some
    assert tables.groups["G"].lag is None
