"""POP: returned messages, invisible time, redelivery, long polling, and refusals."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.pop.take import Pops
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.headers.groups import DeleteGroup
from aerobee.protocol.headers.pop import Notification, PollingInfo, PopMessage
from aerobee.protocol.headers.topics import TopicName

from ...clocks import Clock
from ...waiting import LONG, until
from ..conftest import Config, Run, counted
from ..popping import BACK_AFTER_MS, INVISIBLE_MS, Popper, crashed, records


async def popper(run: Run, config: Config, clock: Clock, queues: int = 1, **wanted: Any) -> Popper:
    return Popper(*await run(config(**wanted)), clock, queues=queues)


async def test_a_pop_returns_the_messages_of_all_queues_with_their_offsets(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=2)
    await p.send(b"a", b"b")
    await p.send(b"c", queue_id=1)
    answer = await p.ask()
    fields = answer.fields()
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert {record.body for record in records(answer)} == {b"a", b"b", b"c"}
    assert sorted(fields.pop("startOffsetInfo").split(";")) == ["0 0 0", "0 1 0"]
    assert sorted(fields.pop("msgOffsetInfo").split(";")) == ["0 0 0,1", "0 1 0"]
    assert fields == {
        "popTime": str(clock.ms),
        "invisibleTime": str(INVISIBLE_MS),
        "reviveQid": "0",
        "restNum": "0",
    }


async def test_a_popped_message_is_invisible_to_its_group_only(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b", b"c")
    assert list(await p.pop(max_messages=2)) == [b"a", b"b"]
    assert list(await p.pop()) == [b"c"]
    assert await p.pop() == {}
    assert list(await p.pop(group="other")) == [b"a", b"b", b"c"]


async def test_the_remaining_messages_are_counted_over_all_queues(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=2)
    await p.send(b"a", b"b")
    await p.send(b"c", b"d", queue_id=1)
    answer = await p.ask(max_messages=1)
    assert answer.fields()["restNum"] == "3"
    assert (await p.ask(queue_id=1)).fields()["restNum"] == "0"


async def test_large_messages_of_many_queues_come_in_responses_below_the_frame_limit(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=5)
    bodies = {b"%d" % number * (4 << 20) for number in range(5)}
    for number, body in enumerate(sorted(bodies)):
        await p.send(body, queue_id=number)
    first = await p.ask()
    assert (len(records(first)), first.fields()["restNum"]) == (3, "2")
    assert len(first.fields()["msgOffsetInfo"].split(";")) == 3
    second = await p.ask()
    assert {record.body for each in (first, second) for record in records(each)} == bodies


async def test_an_acknowledged_message_is_never_redelivered(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    handles = await p.pop()
    assert p.offset() == 0
    for text in handles.values():
        assert (await p.ack(text)).code == 0
    assert p.offset() == 2
    for _ in range(3):
        await p.later(BACK_AFTER_MS)
        assert await p.pop() == {}


async def test_an_unacknowledged_message_is_redelivered_by_the_groups_retry_topic(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=2)
    await p.send(b"a", b"b", b"c", queue_id=1, TAGS="x", KEYS="k")
    first_ms = clock.ms
    handles = await p.pop()
    await p.ack(handles[b"b"])
    await p.later(INVISIBLE_MS)
    assert await p.pop() == {}
    await p.later(4_000)
    answer = await p.ask()
    assert answer.fields()["startOffsetInfo"] == "1 0 0"
    assert answer.fields()["msgOffsetInfo"] == "1 0 0,1"
    for at, record in enumerate(records(answer)):
        assert (record.body, record.topic) == ((b"a", b"c")[at], "T")
        assert (record.queue_id, record.queue_offset, record.reconsume_times) == (0, at, 1)
        assert record.is_body_intact
        pairs = record.properties
        assert (pairs["TAGS"], pairs["KEYS"], pairs["1ST_POP_TIME"]) == ("x", "k", str(first_ms))
        revive = answer.fields()["reviveQid"]
        assert pairs["POP_CK"] == f"0 {clock.ms} {INVISIBLE_MS} {revive} 1 broker-a 0 {at}"
    topic = p.broker.topics.get("%RETRY%cg_T")
    assert topic is not None
    assert (topic.read_queue_nums, topic.perm) == (1, 6)
    for text in p.handles(answer).values():
        assert (await p.ack(text)).code == 0
    await p.later(BACK_AFTER_MS)
    assert await p.pop() == {}


async def test_a_redelivery_is_counted_for_the_retry_topic(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    await p.pop()
    await p.later(BACK_AFTER_MS)
    found = counted(p.broker)
    assert (found["T"], found["%RETRY%cg_T"]) == (2, 2)


async def test_a_redelivered_message_counts_its_tries_and_keeps_its_first_pop_time(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a")
    first_ms = clock.ms
    for times in range(4):
        answer = await p.ask()
        (record,) = records(answer)
        assert record.reconsume_times == times
        assert record.properties.get("1ST_POP_TIME", str(first_ms)) == str(first_ms)
        await p.later(BACK_AFTER_MS)


async def test_redelivery_of_popped_messages_ignores_the_groups_retry_limit(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    p.broker.groups.put(SubscriptionGroupConfig(group_name="cg", retry_max_times=0))
    await p.send(b"a", TAGS="x")
    for times in range(3):
        (record,) = records(await p.ask())
        assert (record.body, record.reconsume_times) == (b"a", times)
        assert record.properties["TAGS"] == "x"
        await p.later(BACK_AFTER_MS)
    assert p.broker.topics.get("%DLQ%cg") is None


async def test_retry_topics_of_version_2_are_used_if_enabled_and_version_1_is_still_read(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"old")
    await p.pop()
    await p.later(BACK_AFTER_MS)
    assert p.broker.topics.get("%RETRY%cg_T") is not None
    await p.caller.peers.close()
    await p.broker.stop()

    p = await popper(run, config, clock, enable_retry_topic_v2=True)
    await p.send(b"new")
    found: dict[bytes, str] = {}
    for _ in range(40):  # a pop picks one of the two at random
        found |= await p.pop()
    assert found.keys() == {b"old", b"new"}
    assert found[b"old"].split(" ")[4] == "1"
    assert (await p.ack(found[b"old"])).code == 0
    await p.later(BACK_AFTER_MS)
    assert p.broker.topics.get("%RETRY%cg+T") is not None
    again: dict[bytes, str] = {}
    for _ in range(40):
        again |= await p.pop()
    assert list(again) == [b"new"]
    assert again[b"new"].split(" ")[4] == "2"
    assert (await p.ack(again[b"new"])).code == 0


async def test_retry_topics_of_version_2_can_be_enabled_later(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    body = b"enableRetryTopicV2=true\npopResponseReturnActualRetryTopic=true\n"
    assert (await p.caller.ask(codes.UPDATE_BROKER_CONFIG, None, body)).code == codes.SUCCESS
    await p.send(b"a")
    await p.pop()
    await p.later(BACK_AFTER_MS)
    (record,) = records(await p.ask())
    assert (record.body, record.topic) == (b"a", "%RETRY%cg+T")


async def test_the_real_retry_topic_is_shown_if_requested(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, pop_response_return_actual_retry_topic=True)
    await p.send(b"a")
    await p.pop()
    await p.later(BACK_AFTER_MS)
    (record,) = records(await p.ask())
    assert record.topic == "%RETRY%cg_T"
    assert "POP_CK" not in record.properties


async def test_a_tag_expression_skips_other_messages(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    for tag in ("x", "y", "x", "z", "z"):
        await p.send(tag.encode() + b"%d" % clock.ms, TAGS=tag)
        clock.ms += 1
    answer = await p.ask(expression="x || z", expression_type="TAG", max_messages=3)
    assert answer.fields()["msgOffsetInfo"] == "0 0 0,2,3"
    assert [record.properties["TAGS"] for record in records(answer)] == ["x", "x", "z"]
    assert (await p.ask(expression="x")).code == codes.POLLING_TIMEOUT
    for text in p.handles(answer).values():
        await p.ack(text)
    assert p.offset() == 5


async def test_an_sql_expression_filters_by_properties(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, enable_property_filter=True)
    for number in range(6):
        await p.send(b"%d" % number, n=str(number))
    wanted = {"expression": "n > 1 and n < 5", "expression_type": "SQL92"}
    assert list(await p.pop(**wanted, max_messages=2)) == [b"2", b"3"]
    assert list(await p.pop(**wanted)) == [b"4"]
    assert await p.pop(**wanted) == {}


async def test_a_pop_may_use_sql92_with_the_property_filter_disabled(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, enable_property_filter=False)
    await p.send(b"no", n="1")
    await p.send(b"yes", n="2")
    assert list(await p.pop(expression="n > 1", expression_type="SQL92")) == [b"yes"]
    for wrong, kind in (("n >", "SQL92"), ("n > 1", "OTHER")):
        answer = await p.ask(expression=wrong, expression_type=kind)
        assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED


async def test_a_long_poll_skips_many_messages_without_a_match(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, max_filter_message_size=40)
    await p.send(*[b"no"] * 200, TAGS="no")
    await p.send(b"yes", TAGS="yes")
    answer = await asyncio.wait_for(p.ask(expression="yes", poll_ms=10_000, max_messages=1), LONG)
    assert [record.body for record in records(answer)] == [b"yes"]


@pytest.mark.parametrize(("in_memory", "first"), [(True, b"a"), (False, b"c")])
async def test_a_new_group_starts_at_the_requested_position(
    run: Run, config: Config, clock: Clock, in_memory: bool, first: bytes
) -> None:
    p = await popper(run, config, clock, init_pop_offset_by_check_msg_in_mem=in_memory)
    await p.send(b"a", b"b", b"c")
    assert next(iter(await p.pop(group="from-start"))) == b"a"
    assert next(iter(await p.pop(group="from-end", init_mode=1))) == first


async def test_a_reset_offset_takes_effect_with_the_next_pop(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b", b"c")
    assert len(await p.pop()) == 3
    p.broker.offsets.reset("T", "cg", 0, 1)
    clock.ms += 1
    assert list(await p.pop()) == [b"b", b"c"]
    p.broker.offsets.commit("T", "cg", 0, 2)  # without the mark of a reset
    clock.ms += 1
    assert list(await p.pop()) == [b"c"]


async def test_an_offset_beyond_the_queue_moves_to_its_end(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    p.broker.offsets.commit("T", "cg", 0, 77)
    assert await p.pop() == {}
    assert p.offset() == 2
    await p.send(b"c")
    assert list(await p.pop()) == [b"c"]


# --- long polling ---------------------------------------------------------------------------------


async def test_a_pop_waits_for_a_message_in_any_queue(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=4)
    asked = asyncio.create_task(p.ask(poll_ms=10_000))
    await p.waiting(1)
    await p.send(b"a", queue_id=3)
    assert [record.body for record in records(await asked)] == [b"a"]


async def test_a_pop_of_one_queue_waits_for_that_queue(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=2)
    asked = asyncio.create_task(p.ask(poll_ms=10_000, queue_id=1))
    await p.waiting(1)
    await p.send(b"no")
    assert p.broker.pop.handlers.polls.count == 1
    await p.send(b"yes", queue_id=1)
    assert [record.body for record in records(await asked)] == [b"yes"]


async def test_each_waiting_pop_gets_different_messages_the_oldest_pop_first(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    asked = []
    for number in range(3):
        asked.append(asyncio.create_task(p.ask(poll_ms=10_000 + number, max_messages=1)))
        await p.waiting(number + 1)
    await p.send(b"a")
    assert [record.body for record in records(await asked[0])] == [b"a"]
    await p.send(b"b", b"c")
    answers = await asyncio.gather(*asked[1:])
    assert [record.body for answer in answers for record in records(answer)] == [b"b", b"c"]


async def test_a_waiting_pop_gets_a_redelivered_message(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a")
    await p.pop()
    asked = asyncio.create_task(p.ask(poll_ms=BACK_AFTER_MS * 2))
    await p.waiting(1)
    await p.later(BACK_AFTER_MS)
    assert [record.reconsume_times for record in records(await asked)] == [1]


async def test_a_pop_that_times_out_gets_a_response_with_all_fields(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    asked = asyncio.create_task(p.ask(poll_ms=10_000))
    await p.waiting(1)
    await p.later(9_900)
    assert not asked.done()
    await p.later(100)
    answer = await asked
    assert (answer.code, answer.remark) == (codes.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert answer.fields() == {
        "popTime": str(clock.ms),
        "invisibleTime": str(INVISIBLE_MS),
        "reviveQid": answer.fields()["reviveQid"],
        "restNum": "0",
        "startOffsetInfo": "",
        "msgOffsetInfo": "",
    }


async def test_a_pop_over_the_limit_of_waiting_pops_does_not_compute_its_queues(
    run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = await popper(run, config, clock, pop_polling_size=0)
    pops = p.broker.pop.handlers.pops
    asked: list[str] = []
    names = pops.retry_topics

    def noted(_: Pops, topic: str, group: str) -> list[str]:
        asked.append(topic)
        return names(topic, group)

    monkeypatch.setattr(Pops, "retry_topics", noted)
    waits = asyncio.create_task(p.ask(poll_ms=10_000))
    await p.waiting(1)
    of_one_that_waits = len(asked)
    assert (await p.ask(poll_ms=10_000)).code == codes.POLLING_FULL
    assert len(asked) - of_one_that_waits == of_one_that_waits - 1
    await p.send(b"a")
    assert (await waits).code == codes.SUCCESS


async def test_a_pop_over_the_limit_is_refused_and_waiting_pops_can_be_counted(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, pop_polling_size=0)
    asked = asyncio.create_task(p.ask(poll_ms=10_000))
    await p.waiting(1)
    assert (await p.ask(poll_ms=10_000)).code == codes.POLLING_FULL
    info = await p.caller.ask(codes.POLLING_INFO, PollingInfo("cg", "T", -1))
    assert info.fields() == {"pollingNum": "1"}
    info = await p.caller.ask(codes.POLLING_INFO, PollingInfo("cg", "T", 0))
    assert info.fields() == {"pollingNum": "0"}
    await p.send(b"a")
    assert (await asked).code == 0


async def test_with_a_threshold_a_group_pops_no_more_while_many_messages_are_out(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(
        run, config, clock, enable_pop_message_threshold=True, pop_inflight_message_threshold=2
    )
    await p.send(b"a", b"b", b"c", b"d", b"e")
    handles = await p.pop(max_messages=3)
    answer = await p.ask()
    assert (answer.code, answer.fields()["restNum"]) == (codes.POLLING_TIMEOUT, "2")
    notified = await p.caller.ask(
        codes.NOTIFICATION, Notification("cg", "T", -1, 0, p.clock.ms, False, None)
    )
    assert notified.fields()["hasMsg"] == "false"
    waits = asyncio.create_task(p.ask(max_messages=1, poll_ms=10_000))
    await p.waiting(1)
    assert (await p.ack(handles[b"a"])).code == codes.SUCCESS
    assert list(p.handles(await waits)) == [b"d"]
    assert await p.pop() == {}
    other = Popper(p.broker, p.caller, clock, group="other")
    assert len(await other.pop()) == 5
    # What comes again is out no more.
    await p.later(BACK_AFTER_MS)
    assert set(await p.pop()) >= {b"b", b"c", b"d", b"e"}


@pytest.mark.parametrize("what", ["topic", "group"])
async def test_messages_of_a_topic_or_group_that_was_deleted_are_out_no_more(
    run: Run, config: Config, clock: Clock, what: str
) -> None:
    p = await popper(
        run, config, clock, enable_pop_message_threshold=True, pop_inflight_message_threshold=2
    )
    await p.send(b"a", b"b", b"c", b"d")
    assert len(await p.pop(max_messages=3)) == 3
    assert await p.pop() == {}
    if what == "topic":
        deleted = await p.caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("T"))
        p = Popper(p.broker, p.caller, clock)
    else:
        deleted = await p.caller.ask(
            codes.DELETE_SUBSCRIPTIONGROUP, DeleteGroup("cg", clean_offset=True)
        )
    assert deleted.code == codes.SUCCESS
    await p.send(b"later")
    clock.ms += 1
    assert b"later" in await p.pop()


async def test_the_long_poll_of_a_disconnected_client_is_removed(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    asked = asyncio.create_task(p.ask(poll_ms=10_000))
    await p.waiting(1)
    await p.caller.peers.close()
    with pytest.raises(ConnectionError):
        await asked
    await until(lambda: not p.broker.server.connections)
    p.broker.pop.handlers.tidy()
    assert p.broker.pop.handlers.polls.count == 0


async def test_a_notification_tells_whether_a_message_can_be_popped(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=2)
    header = Notification("cg", "T", -1, 0, clock.ms)
    no = {"hasMsg": "false", "pollingFull": "false"}
    yes = no | {"hasMsg": "true"}
    assert (await p.caller.ask(codes.NOTIFICATION, header)).fields() == no
    asked = asyncio.create_task(
        p.caller.ask(codes.NOTIFICATION, Notification("cg", "T", -1, 10_000, clock.ms))
    )
    await p.waiting(1)
    await p.send(b"a", queue_id=1)
    assert (await asked).fields() == yes
    assert (await p.caller.ask(codes.NOTIFICATION, header)).fields() == yes
    await p.pop()
    assert (await p.caller.ask(codes.NOTIFICATION, header)).fields() == no
    asked = asyncio.create_task(
        p.caller.ask(codes.NOTIFICATION, Notification("cg", "T", 0, 10_000, clock.ms))
    )
    await p.waiting(1)
    await p.later(10_000)
    assert (await asked).fields() == no
    await p.later(BACK_AFTER_MS)  # it has been redelivered
    assert (await p.caller.ask(codes.NOTIFICATION, header)).fields() == yes


async def test_a_message_notifies_the_waiting_request_with_the_latest_deadline(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    asked = []
    for number, wait_ms in enumerate((10_000, 11_000, 9_000)):
        header = Notification("cg", "T", -1, wait_ms, clock.ms)
        asked.append(asyncio.create_task(p.caller.ask(codes.NOTIFICATION, header)))
        await p.waiting(number + 1)
    await p.send(b"a")  # the request that would wait longest
    assert (await asked[1]).fields()["hasMsg"] == "true"
    assert p.broker.pop.handlers.notifications.count == 2
    assert list(await p.pop()) == [b"a"]
    await p.later(9_000)
    assert (await asked[2]).fields()["hasMsg"] == "false"
    await p.later(1_000)
    assert (await asked[0]).fields()["hasMsg"] == "false"


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("merge", [True, False])
async def test_a_crash_loses_no_message_and_leaves_none_invisible_for_ever(
    run: Run, config: Config, clock: Clock, tmp_path: Path, merge: bool
) -> None:
    p = await popper(run, config, clock, enable_pop_buffer_merge=merge)
    await p.send(b"acked", b"in memory", b"in the log", b"not popped")
    handles = await p.pop(max_messages=3)
    await p.ack(handles[b"acked"])
    await p.later(12_000)  # the check point is written by now
    await p.ack(handles[b"in memory"])
    p.broker.offsets.save()
    left = crashed(p.broker, tmp_path / "crashed")

    p = Popper(*await run(config(**left)), clock)
    found = await p.pop()
    await p.later(BACK_AFTER_MS)
    again = await p.pop()
    assert found.keys() == {b"not popped"}
    assert again.keys() == {b"in the log", b"not popped"}
    assert p.offset() == 4


async def test_after_a_crash_before_any_write_all_messages_are_popped_again(
    run: Run, config: Config, clock: Clock, tmp_path: Path
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    handles = await p.pop()
    await p.ack(handles[b"b"])
    p.broker.offsets.save()
    left = crashed(p.broker, tmp_path / "crashed")
    p = Popper(*await run(config(**left)), clock)
    assert list(await p.pop()) == [b"a", b"b"]


async def test_a_restart_keeps_pops_and_acknowledgements(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b", b"c")
    handles = await p.pop()
    await p.ack(handles[b"b"])
    await p.caller.peers.close()
    await p.broker.stop()
    p = await popper(run, config, clock)
    assert p.offset() == 3
    assert await p.pop() == {}
    assert (await p.ack(handles[b"c"])).code == 0
    await p.later(BACK_AFTER_MS)
    assert list(await p.pop()) == [b"a"]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        ({"topic": "Nowhere"}, codes.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ({"topic": "Closed"}, codes.NO_PERMISSION, "topic[Closed] pulling message is forbidden"),
        ({"queue_id": 1}, codes.INVALID_PARAMETER, "queueId[1] is illegal"),
        ({"max_messages": 33}, codes.INVALID_PARAMETER, "num is 33, it must be 0 to 32"),
        ({"max_messages": -1}, codes.INVALID_PARAMETER, "num is -1, it must be 0 to 32"),
        ({"invisible_ms": -1}, codes.INVALID_PARAMETER, "it must be 0 to 259200000"),
        ({"invisible_ms": 259_200_001}, codes.INVALID_PARAMETER, "is 259200001 ms"),
        ({"group": "off"}, codes.NO_PERMISSION, "subscription group no permission, off"),
        ({"group": "un/known"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "illegal characters"),
        ({"born_ms": 1}, codes.POLLING_TIMEOUT, "timeout too much"),
        (
            {"expression": "n >", "expression_type": "SQL92"},
            codes.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ),
        ({"expression": " || "}, codes.SUBSCRIPTION_PARSE_FAILED, "has no tag"),
    ],
)
async def test_an_invalid_pop_is_refused_with_the_reason(
    run: Run, config: Config, clock: Clock, wanted: dict[str, Any], code: int, why: str
) -> None:
    p = await popper(run, config, clock, enable_property_filter=True)
    p.broker.topics.put(TopicConfig("Closed", 1, 1, 2))
    p.broker.groups.put(SubscriptionGroupConfig(group_name="off", consume_enable=False))
    answer = await p.ask(**wanted)
    assert answer.code == code
    assert why in (answer.remark or "")
    # The client decodes these fields before it checks the code.
    zeros = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
    assert answer.fields() == zeros


@pytest.mark.parametrize("wanted", [{"topic": "Nowhere"}, {"group": "un/known"}])
async def test_a_request_about_an_unknown_topic_or_group_is_refused_with_all_fields(
    run: Run, config: Config, clock: Clock, wanted: dict[str, str]
) -> None:
    p = await popper(run, config, clock)
    fields = {"consumerGroup": "cg", "topic": "T", "queueId": "0", "pollTime": "0"}
    for key, value in wanted.items():
        fields["consumerGroup" if key == "group" else key] = value
    told = await p.caller.ask(codes.NOTIFICATION, fields)
    assert told.fields() == {"hasMsg": "false", "pollingFull": "false"}
    counted = await p.caller.ask(codes.POLLING_INFO, fields)
    assert counted.fields() == {"pollingNum": "0"}
    assert told.code == counted.code in (17, 26)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"timer_wheel_enable": False}, "timerWheelEnable is false"),
        ({"auto_create_subscription_group": False}, "subscription group [cg] does not exist"),
        ({"broker_permission": 2}, "brokerPermission is 2, without 4 for reading"),
    ],
)
async def test_a_broker_that_serves_no_pops_gives_the_reason(
    run: Run, config: Config, clock: Clock, setting: dict[str, Any], why: str
) -> None:
    p = await popper(run, config, clock, **setting)
    assert why in ((await p.ask()).remark or "")


async def test_any_negative_queue_id_means_all_queues(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, queues=2)
    waiting = asyncio.create_task(p.ask(queue_id=-2, poll_ms=60_000))
    await p.waiting(1)
    place = {"consumerGroup": "cg", "topic": "T", "queueId": "-7", "pollTime": "0"}
    assert (await p.caller.ask(codes.POLLING_INFO, place)).fields() == {"pollingNum": "1"}
    await p.send(b"a", queue_id=1)
    assert list(p.handles(await waiting)) == [b"a"]
    await p.send(b"b", queue_id=0)
    told = await p.caller.ask(codes.NOTIFICATION, place)
    assert told.fields()["hasMsg"] == "true"
    assert list(await p.pop(queue_id=-3)) == [b"b"]


async def test_a_pop_of_zero_messages_counts_them_and_waits_until_its_timeout(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    answer = await p.ask(max_messages=0)
    assert (answer.code, answer.fields()["restNum"]) == (codes.POLLING_TIMEOUT, "2")
    waiting = asyncio.create_task(p.ask(max_messages=0, poll_ms=1_000))
    await p.waiting(1)
    await p.send(b"c")
    await p.later(1_000)
    answer = await waiting
    assert (answer.code, answer.fields()["restNum"]) == (codes.POLLING_TIMEOUT, "3")
    assert list(await p.pop()) == [b"a", b"b", b"c"]


async def test_a_message_popped_without_an_invisible_time_is_redelivered_at_once(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    fields = {"consumerGroup": "cg", "topic": "T", "maxMsgNums": "32"}
    answer = await p.caller.ask(codes.POP_MESSAGE, fields)
    assert answer.fields()["invisibleTime"] == "0"
    handles = p.handles(answer)
    assert (await p.ack(handles[b"b"])).code == 0
    assert await p.pop() == {}
    await p.later(4_000)
    assert list(await p.pop()) == [b"a"]


async def test_a_pop_without_a_born_time_counts_as_new(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a")
    header = PopMessage("cg", "T", -1, 32, INVISIBLE_MS, 0, 0)
    assert (await p.caller.ask(codes.POP_MESSAGE, header)).code == 0
