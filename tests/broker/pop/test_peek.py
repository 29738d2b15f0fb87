"""PEEK_MESSAGE (200052): what the next pops would find, left where it is."""

import random
from typing import Any

import pytest
from aerobee.broker.pop import peek
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pop import PeekMessage
from aerobee.protocol.message.record import decode_all

from ...clocks import Clock
from ..conftest import Config, Run
from ..popping import BACK_AFTER_MS, Popper

ZEROS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
RETRY = "%RETRY%cg_T"


async def popper(run: Run, config: Config, clock: Clock, queues: int = 1, **wanted: Any) -> Popper:
    return Popper(*await run(config(**wanted)), clock, queues=queues)


async def ask(p: Popper, **wanted: Any) -> Command:
    usual: dict[str, Any] = {"group": "cg", "topic": "T", "queue_id": -1, "max_messages": 32}
    return await p.caller.ask(codes.PEEK_MESSAGE, PeekMessage(**(usual | wanted)))


async def seen(p: Popper, **wanted: Any) -> tuple[list[bytes], int]:
    """The bodies that a peek shows, and how many messages it says there are."""
    answer = await ask(p, **wanted)
    assert (answer.code, answer.remark) == (0, "FOUND")
    fields = answer.fields()
    rest = int(fields.pop("restNum"))
    assert fields == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    return [record.body for record in decode_all(answer.body or b"")], rest


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The random numbers, of which the last is drawn each time."""
    drawn = [1]
    monkeypatch.setattr(random, "randrange", lambda _: drawn[-1])
    return drawn


async def test_a_peek_takes_nothing_and_shows_what_the_next_pop_gives(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b", b"c")
    for _ in range(2):
        assert await seen(p, max_messages=2) == ([b"a", b"b"], 3)
    assert p.offset() == -1
    assert list(await p.pop(max_messages=2)) == [b"a", b"b"]
    assert await seen(p) == ([b"c"], 1)  # what was popped is invisible to it, too
    assert await seen(p, group="other") == ([b"a", b"b", b"c"], 3)
    assert list(await p.pop()) == [b"c"]
    answer = await ask(p)
    assert (answer.code, answer.remark) == (codes.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    assert answer.fields() == ZEROS
    assert p.broker.stats.gets("T", "other").messages == 3


async def test_all_queues_are_looked_through_or_one(
    run: Run, config: Config, clock: Clock, chance: list[int]
) -> None:
    p = await popper(run, config, clock, queues=3)
    for number in range(3):
        await p.send(b"%d" % number, b"%d!" % number, queue_id=number)
    assert await seen(p) == ([b"1", b"1!", b"2", b"2!", b"0", b"0!"], 6)
    assert await seen(p, queue_id=-7, max_messages=3) == ([b"1", b"1!", b"2"], 6)
    assert await seen(p, queue_id=2) == ([b"2", b"2!"], 2)
    answer = await ask(p, max_messages=0)
    assert (answer.code, answer.fields()["restNum"]) == (codes.PULL_NOT_FOUND, "6")
    bare = {"consumerGroup": "cg", "topic": "T"}  # as of queue 0, and of no message
    assert (await p.caller.ask(codes.PEEK_MESSAGE, bare)).fields()["restNum"] == "2"


async def test_what_comes_again_is_seen_first_or_last_as_it_lies_there(
    run: Run, config: Config, clock: Clock, chance: list[int]
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"again")
    await p.pop()
    await p.later(BACK_AFTER_MS)
    await p.send(b"new")
    for drawn, bodies in ((1, [b"new", b"again"]), (5, [b"again", b"new"])):
        chance.append(drawn)
        assert await seen(p) == (bodies, 2)
        assert (await seen(p, max_messages=1))[0] == bodies[:1]
    answer = await ask(p)
    assert [record.topic for record in decode_all(answer.body or b"")] == [RETRY, "T"]
    # With one message there is no room left, so the retry topic is not even counted.
    chance.append(1)
    assert await seen(p, max_messages=1) == ([b"new"], 1)


async def test_a_group_that_is_outside_its_queue_sees_where_it_would_go_on(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    p.broker.offsets.commit("T", "cg", 0, 9)
    answer = await ask(p)
    assert (answer.code, answer.fields()["restNum"]) == (codes.PULL_NOT_FOUND, "-7")
    assert p.offset() == 9


async def test_no_more_is_shown_than_an_answer_can_hold(
    run: Run, config: Config, clock: Clock, chance: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peek, "RESPONSE_BYTES_MAX", 2_500)
    p = await popper(run, config, clock, queues=3)
    for number in range(3):
        await p.send(b"%d" % number * 1_000, queue_id=number)
    assert await seen(p) == ([b"1" * 1_000, b"2" * 1_000], 3)
    monkeypatch.setattr(peek, "RESPONSE_BYTES_MAX", 900)
    assert await seen(p) == ([b"1" * 1_000], 3)  # one in any case


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        ({"topic": "Nowhere"}, codes.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ({"topic": "Closed"}, codes.NO_PERMISSION, "topic[Closed] pulling message is forbidden"),
        ({"queue_id": 1}, codes.INVALID_PARAMETER, "queueId[1] is illegal"),
        ({"group": "off"}, codes.NO_PERMISSION, "subscription group no permission, off"),
        ({"group": "un/known"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "illegal characters"),
        ({"max_messages": -1}, codes.SYSTEM_ERROR, "maxMsgNums is -1, it must be 0 or more"),
    ],
)
async def test_a_peek_that_can_not_be_is_refused_with_the_reason(
    run: Run, config: Config, clock: Clock, wanted: dict[str, Any], code: int, why: str
) -> None:
    p = await popper(run, config, clock)
    p.broker.topics.put(TopicConfig("Closed", 1, 1, 2))
    p.broker.groups.put(SubscriptionGroupConfig(group_name="off", consume_enable=False))
    answer = await ask(p, **wanted)
    assert answer.code == code
    assert why in (answer.remark or "")
    assert answer.fields() == ZEROS


async def test_a_peek_is_refused_while_others_have_not_read_their_answers(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a")
    budget = p.broker.server.scheduler.budget
    budget.add(2 * budget.bytes_max)
    assert (await ask(p)).code == codes.SYSTEM_BUSY
    budget.add(-2 * budget.bytes_max)
    assert await seen(p) == ([b"a"], 1)
