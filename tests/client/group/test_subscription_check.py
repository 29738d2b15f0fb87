"""Members of one group with different subscriptions are logged."""

import asyncio

import pytest
from aerobee.client import Consumer
from aerobee.client.group import subscription_check
from aerobee.client.group.subscriptions import subscriptions_of
from aerobee.protocol import codes
from aerobee.protocol.bodies.clients import ConsumerConnection
from aerobee.protocol.bodies.running import ConsumerRunningInfo
from aerobee.protocol.bodies.subscription import SubscriptionData
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.clients import ConsumerRunningInfo as AskRunningInfo

from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf

MINE = {"orders": "paid"}


def tell(fake: FakeCluster, table: dict[str, SubscriptionData], model: str = "CLUSTERING") -> None:
    """Have the broker believe this of the group, and member "odd" want it."""
    group = ConsumerConnection(subscription_table=table, message_model=model)
    info = ConsumerRunningInfo(subscription_set=list(table.values()))
    same = ConsumerRunningInfo(subscription_set=list(subscriptions_of("g", MINE).values()))

    def running(command: Command, _: object) -> Response:
        is_odd = command.header(AskRunningInfo).client_id == "odd"
        return Response(body=(info if is_odd else same).encode())

    fake.broker.answers[codes.GET_CONSUMER_CONNECTION_LIST] = lambda *_: Response(
        body=group.encode()
    )
    fake.broker.answers[codes.GET_CONSUMER_RUNNING_INFO] = running


async def said(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture, sentences: int = 1
) -> list[str]:
    """What a member of three logs about the others, when that is so much."""
    fake.broker.members |= {"odd", "same"}
    async with Consumer(fake.address, group="g", topics=MINE, client_id="me"):
        await until(lambda: bool(fake.broker.requests[codes.GET_CONSUMER_CONNECTION_LIST]))
        await until(lambda: len(_of(caplog)) >= sentences)
        for _ in range(50):
            await asyncio.sleep(0)  # for what should not come
    return _of(caplog)


def _of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name == subscription_check.__name__]


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"orders": "open"}, "orders: 'open'"),
        ({"orders": "paid", "more": "*"}, "more: '*', orders: 'paid'"),
        ({"more": "paid"}, "more: 'paid'"),
    ],
)
async def test_the_member_that_wants_something_else_is_named(
    fake: FakeCluster,
    shelf: Shelf,
    caplog: pytest.LogCaptureFixture,
    theirs: dict[str, str],
    words: str,
) -> None:
    tell(fake, subscriptions_of("g", theirs))
    (sentence,) = await said(fake, caplog)
    assert f"member odd of group g wants %RETRY%g: '*', {words}, this one (me)" in sentence
    assert "give all members of a group the same topics and expressions" in sentence


async def test_members_that_agree_are_not_spoken_of(
    fake: FakeCluster, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    tell(fake, subscriptions_of("g", MINE))
    assert await said(fake, caplog, 0) == []
    assert not fake.broker.requests[codes.GET_CONSUMER_RUNNING_INFO]


async def test_another_model_in_the_group_is_told(
    fake: FakeCluster, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    tell(fake, subscriptions_of("g", MINE), "BROADCASTING")
    (sentence,) = await said(fake, caplog)
    assert "BROADCASTING for its broker, and CLUSTERING here" in sentence


async def test_once_that_is_said_the_pulls_that_fail_by_it_are_not_spoken_of(
    fake: FakeCluster, shelf: Shelf, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    tell(fake, subscriptions_of("g", {"more": "*"}))
    fake.broker.members |= {"odd", "same"}
    lost = Response(codes.SUBSCRIPTION_NOT_EXIST, remark="who?")
    fake.broker.answers[codes.PULL_MESSAGE] = lambda *_: lost
    pulls = fake.broker.requests[codes.PULL_MESSAGE]
    async with Consumer(fake.address, group="g", topics=MINE, client_id="me"):
        await until(lambda: len(_of(caplog)) == 1)
        await clock.advance(60)
        assert len(pulls) > 10
        assert len(_of(caplog)) == 1
    warned = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert [text for text in warned if "SUBSCRIPTION_NOT_EXIST (24)" in text] == []
