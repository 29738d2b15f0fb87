"""Subscriptions by SQL92 over a socket: from the heartbeat to the messages that match."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
)
from aerobee.protocol.bodies.subscription import SQL92, SubscriptionData, subscription
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import PullMessageResponse
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.store.engine.messages import Batch, Message

from ...waiting import until
from ..conftest import Caller, Config, Start, parked, records

BIG = "a > 2"


@pytest.fixture
def filtering(config: Config) -> Config:
    return lambda **wanted: config(enable_property_filter=True, **wanted)


@pytest.fixture
async def broker(start: Start, filtering: Config) -> Broker:
    return await start(filtering())


@pytest.fixture
async def caller(broker: Broker) -> AsyncIterator[Caller]:
    caller = Caller(broker)
    yield caller
    await caller.peers.close()


async def filled(caller: Caller, topic: str = "T") -> None:
    """Messages with the property a from 0 to 5."""
    for number in range(6):
        await caller.send(topic, b"%d" % number, a=str(number))


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [record.body for record in records(answer)]


def next_offset(answer: Command) -> int:
    return answer.header(PullMessageResponse).next_offset


# --- an expression in the pull --------------------------------------------------------------------


@pytest.mark.parametrize("code", [codes.PULL_MESSAGE, codes.LITE_PULL_MESSAGE])
@pytest.mark.parametrize(
    ("text", "found", "following"),
    [
        (BIG, [b"3", b"4", b"5"], 6),
        ("a BETWEEN 1 AND 2", [b"1", b"2"], 6),
        ("a IN ('0', '4') OR a = 1", [b"0", b"1", b"4"], 6),
        ("b IS NULL AND NOT (a >= 1)", [b"0"], 6),
        ("a IS NOT NULL", [b"0", b"1", b"2", b"3", b"4", b"5"], 6),
        ("b LIKE 'x'", [], 6),
    ],
)
async def test_a_pull_without_a_heartbeat_gives_what_its_expression_is_true_of(
    caller: Caller, code: int, text: str, found: list[bytes], following: int
) -> None:
    await filled(caller)
    answer = await caller.pull("T", expression=text, kind=SQL92, code=code)
    if found:
        assert bodies(answer) == found
    else:
        assert (answer.code, answer.remark) == (codes.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert next_offset(answer) == following


async def test_a_pull_that_is_full_goes_on_at_the_next_match(caller: Caller) -> None:
    await filled(caller)
    answer = await caller.pull("T", expression="a <> 1", kind=SQL92, max_messages=1)
    assert (bodies(answer), next_offset(answer)) == ([b"0"], 2)
    answer = await caller.pull("T", 2, expression="a <> 1", kind=SQL92, max_messages=2)
    assert (bodies(answer), next_offset(answer)) == ([b"2", b"3"], 4)


@pytest.mark.parametrize(
    ("offset", "code", "following"),
    [
        (6, codes.PULL_NOT_FOUND, 6),
        (7, codes.PULL_OFFSET_MOVED, 6),
        (-1, codes.PULL_OFFSET_MOVED, 0),
    ],
)
async def test_an_offset_without_a_message_has_the_same_code_as_by_tags(
    caller: Caller, offset: int, code: int, following: int
) -> None:
    await filled(caller)
    answer = await caller.pull("T", offset, expression=BIG, kind=SQL92)
    assert (answer.code, next_offset(answer)) == (code, following)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("a > ", SQL92, "wrong at character 5"),
        ("a > 'x'", SQL92, "wrong at character 5"),
        ("", SQL92, "is empty"),
        ("a", "XML", "'XML' is not known"),
    ],
)
async def test_an_expression_that_can_not_be_used_is_refused_with_its_place(
    caller: Caller, text: str, kind: str, says: str
) -> None:
    await filled(caller)
    answer = await caller.pull("T", expression=text, kind=kind)
    assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED
    assert says in (answer.remark or "")
    check = CheckClientRequestBody("c", "cg", SubscriptionData("T", text, expression_type=kind))
    answer = await caller.ask(codes.CHECK_CLIENT_CONFIG, None, check.encode())
    assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED
    assert "wrong" in (answer.remark or "") or says in (answer.remark or "")


async def test_a_good_expression_is_fine(caller: Caller) -> None:
    check = CheckClientRequestBody("c", "cg", subscription("T", BIG, SQL92))
    assert (await caller.ask(codes.CHECK_CLIENT_CONFIG, None, check.encode())).code == 0


# --- an expression told by heartbeat --------------------------------------------------------------


async def test_the_expression_of_the_heartbeat_rules_and_a_later_one_replaces_it(
    caller: Caller,
) -> None:
    await filled(caller)
    await caller.heartbeat(topics={"T": BIG}, version=5, kind=SQL92)
    answer = await caller.pull("T", expression=None, sub_version=5)
    assert bodies(answer) == [b"3", b"4", b"5"]
    assert bodies(await caller.pull("T", expression=None, sub_version=4)) == [b"3", b"4", b"5"]
    newer = await caller.pull("T", expression=None, sub_version=6)
    assert newer.code == codes.SUBSCRIPTION_NOT_LATEST
    await caller.heartbeat(topics={"T": "a < 2"}, version=6, kind=SQL92)
    assert bodies(await caller.pull("T", expression=None, sub_version=6)) == [b"0", b"1"]


async def test_a_faulty_expression_is_refused_by_the_heartbeat_and_harms_no_other_group(
    caller: Caller,
) -> None:
    await filled(caller)
    wanted = {"wrong": "a = = 1", "right": BIG}
    groups = [
        ConsumerData(name, "CONSUME_PASSIVELY", "CLUSTERING", "", [subscription("T", text, SQL92)])
        for name, text in wanted.items()
    ]
    answer = await caller.ask(codes.HEART_BEAT, None, HeartbeatData("c", [], groups).encode())
    assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED
    assert "wrong at character 5" in (answer.remark or "")
    assert bodies(await caller.pull("T", expression=None, group="right")) == [b"3", b"4", b"5"]
    answer = await caller.pull("T", expression=None, group="wrong")
    assert answer.code == codes.FILTER_DATA_NOT_EXIST
    assert "wrong at character 5" in (answer.remark or "")


async def test_a_filter_dies_with_its_consumers_and_is_in_the_file(
    start: Start,
    filtering: Config,
    broker: Broker,
) -> None:
    caller = Caller(broker)
    await caller.heartbeat(topics={"T": BIG}, version=5, kind=SQL92)
    data = broker.filters.find("T", "cg")
    assert data is not None

    def is_dead() -> bool:
        return data.is_dead

    assert not is_dead()
    await caller.peers.close()
    await until(lambda: is_dead())
    await broker.stop()
    path = broker.root / "config" / "consumerFilter.json"
    kept = json.loads(path.read_text())["filterDataByTopic"]["T"]["groupFilterData"]["cg"]
    assert (kept["expression"], kept["clientVersion"]) == (BIG, 5)
    again = await start(filtering())
    caller = Caller(again)
    await filled(caller)
    await caller.heartbeat(topics={"T": BIG}, version=5, kind=SQL92)
    assert bodies(await caller.pull("T", expression=None, sub_version=5)) == [b"3", b"4", b"5"]
    await caller.peers.close()


async def test_where_it_is_switched_off_everybody_is_told(start: Start, config: Config) -> None:
    caller = Caller(await start(config()))
    await filled(caller)
    assert (await caller.heartbeat(topics={"T": BIG}, kind=SQL92)).code == 0
    for answer in (
        await caller.pull("T", expression=None),
        await caller.pull("T", expression=BIG, kind=SQL92),
        await caller.pull("T", expression="a = ", kind=SQL92),
    ):
        assert answer.code == codes.SYSTEM_ERROR
        assert "does not support consumer to filter message by SQL92" in (answer.remark or "")
    await caller.peers.close()


async def test_retries_are_filtered_by_the_expression_of_their_topic(
    start: Start, filtering: Config
) -> None:
    broker = await start(filtering(filter_support_retry=True))
    caller = Caller(broker)
    await caller.heartbeat(topics={"T": BIG}, version=5, kind=SQL92)
    for number in (1, 5):
        await caller.send("%RETRY%cg", b"%d" % number, RETRY_TOPIC="T", a=str(number))
    answer = await caller.pull("%RETRY%cg", expression="TRUE", kind=SQL92)
    assert bodies(answer) == [b"5"]
    await caller.peers.close()


# --- waiting --------------------------------------------------------------------------------------


async def test_a_waiting_pull_is_woken_only_by_a_message_that_matches(
    broker: Broker, caller: Caller
) -> None:
    await filled(caller)
    waiting = asyncio.ensure_future(
        caller.pull("T", 6, expression="a = 9", kind=SQL92, suspend_ms=15_000)
    )
    await parked(broker, 1)
    for _ in range(3):
        await caller.send("T", a="8")
    assert not waiting.done()
    await caller.send("T", b"mine", a="9")
    answer = await waiting
    assert (bodies(answer), next_offset(answer)) == ([b"mine"], 10)


async def test_a_match_behind_more_others_than_one_scan_takes_is_not_waited_for(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T", a="8")
    waiting = asyncio.ensure_future(
        caller.pull("T", 1, expression="a = 9", kind=SQL92, suspend_ms=15_000)
    )
    await parked(broker, 1)
    others = encode_batch(Entry(0, b"x", b"a\x018\x02") for _ in range(900))
    broker.store.put_batch(Batch(("T", 0), 0, 1, bytes(8), others), b"")
    broker.store.put(Message(("T", 0), 0, 0, 1, bytes(8), b"mine", b"a\x019\x02", 0))
    broker.wake(("T", 0))
    answer = await waiting
    assert answer.code == codes.PULL_RETRY_IMMEDIATELY
    assert next_offset(answer) == 801
    found = await caller.pull("T", 801, expression="a = 9", kind=SQL92, suspend_ms=15_000)
    assert bodies(found) == [b"mine"]


async def test_a_waiting_pull_whose_group_takes_another_expression_goes_by_the_new_one(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T", a="8")
    await caller.heartbeat(topics={"T": "a = 9"}, version=5, kind=SQL92)
    waiting = asyncio.ensure_future(
        caller.pull("T", 1, expression=None, sub_version=5, suspend_ms=15_000)
    )
    await parked(broker, 1)
    await caller.heartbeat(topics={"T": "a = 7"}, version=6, kind=SQL92)
    await caller.send("T", b"old", a="9")
    assert not waiting.done()
    await caller.send("T", b"new", a="7")
    assert bodies(await waiting) == [b"new"]
