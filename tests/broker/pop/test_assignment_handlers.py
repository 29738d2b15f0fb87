"""Assignment of queues to consumers by the broker, request modes, messageRequestMode.json."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.pop.request_modes import RequestModes
from aerobee.broker.server import Broker
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.bodies.assignment import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command
from aerobee.protocol.queues.allocation import STRATEGIES

from ...clocks import Clock
from ...waiting import LONG
from ..conftest import Caller, Config, Run, Start

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(8)]


@pytest.fixture
async def members(broker: Broker, caller: Caller) -> AsyncIterator[list[Caller]]:
    """Three clients of the group, each with its own connection."""
    broker.topics.put(TopicConfig("T", 8, 8))
    callers = [caller, Caller(broker), Caller(broker)]
    for number, each in enumerate(callers):
        await each.heartbeat(f"c{number}", topics={"T": "*"})
    yield callers
    for each in callers[1:]:
        await each.peers.close()


async def assigned(caller: Caller, client_id: str, **wanted: Any) -> dict[str, Any]:
    body = QueryAssignmentRequestBody("T", "cg", client_id, "AVG", "CLUSTERING")
    for name, value in wanted.items():
        setattr(body, name, value)
    answer = await caller.ask(codes.QUERY_ASSIGNMENT, None, body.encode())
    assert answer.code == 0, answer
    found: dict[str, Any] = json.loads(answer.body or b"")
    return found


def queues_of(found: dict[str, Any]) -> list[MessageQueue]:
    read = QueryAssignmentResponseBody.decode(json.dumps(found).encode())
    return [each.message_queue or MessageQueue() for each in read.message_queue_assignments or []]


async def set_mode(caller: Caller, mode: str = "POP", share: int = 0, **wanted: Any) -> Command:
    body = SetMessageRequestModeRequestBody("T", "cg", mode, share)
    for name, value in wanted.items():
        setattr(body, name, value)
    return await caller.ask(codes.SET_MESSAGE_REQUEST_MODE, None, body.encode())


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
async def test_each_member_that_pulls_gets_its_part_of_the_queues(
    members: list[Caller], name: str
) -> None:
    ids = ["c0", "c1", "c2"]
    for client_id in ids:
        found = await assigned(members[0], client_id, strategy_name=name)
        assert queues_of(found) == STRATEGIES[name](client_id, QUEUES, ids)
        assert {each["mode"] for each in found["messageQueueAssignments"]} == {"PULL"}


async def test_members_that_pop_read_all_queues(members: list[Caller]) -> None:
    assert (await set_mode(members[0])).code == 0
    for client_id in ("c0", "stranger"):
        assert await assigned(members[0], client_id) == {
            "messageQueueAssignments": [
                {
                    "messageQueue": {"brokerName": "broker-a", "queueId": -1, "topic": "T"},
                    "mode": "POP",
                }
            ]
        }


async def test_members_that_pop_may_share_queues_with_a_few_others(members: list[Caller]) -> None:
    await set_mode(members[0], share=1)
    shares = [queues_of(await assigned(members[0], f"c{number}")) for number in range(3)]
    own = [STRATEGIES["AVG"](f"c{number}", QUEUES, ["c0", "c1", "c2"]) for number in range(3)]
    assert shares == [own[0] + own[1], own[1] + own[2], own[2] + own[0]]
    assert queues_of(await assigned(members[0], "stranger")) == []


async def test_with_fewer_queues_than_members_each_has_one(
    broker: Broker, members: list[Caller]
) -> None:
    broker.topics.put(TopicConfig("T", 2, 2))
    await set_mode(members[0], share=1)
    shares = [queues_of(await assigned(members[0], f"c{number}")) for number in range(3)]
    assert shares == [[QUEUES[0]], [QUEUES[1]], [QUEUES[0]]]


async def test_broadcasting_assigns_all_queues_to_each_member(members: list[Caller]) -> None:
    found = await assigned(members[0], "c1", message_model="BROADCASTING")
    assert queues_of(found) == QUEUES


@pytest.mark.parametrize(
    "wanted",
    [
        {"strategy_name": "CONSISTENT_HASH"},
        {"consumer_group": "nobody"},
        {"topic": "Nowhere"},
        {"topic": "Nowhere", "message_model": "BROADCASTING"},
    ],
)
async def test_an_unknown_strategy_group_or_topic_gives_an_empty_assignment(
    members: list[Caller], wanted: dict[str, str]
) -> None:
    assert await assigned(members[0], "c0", **wanted) == {}


async def test_the_default_mode_is_the_brokers_except_pull_for_retry_topics(
    start: Start, config: Config
) -> None:
    broker = await start(config(default_message_request_mode="POP"))
    caller = Caller(broker)
    for topic in ("T", "%RETRY%cg"):
        broker.topics.put(TopicConfig(topic, 2, 2))
    await caller.heartbeat("c0", topics={"T": "*"})
    found = await assigned(caller, "c0")
    assert [each["mode"] for each in found["messageQueueAssignments"]] == ["POP"]
    found = await assigned(caller, "c0", topic="%RETRY%cg")
    assert {each["mode"] for each in found["messageQueueAssignments"]} == {"PULL"}
    await caller.peers.close()


async def test_without_server_load_balancing_each_member_gets_all_queues(
    start: Start, config: Config
) -> None:
    broker = await start(config(server_load_balancer_enable=False))
    caller = Caller(broker)
    broker.topics.put(TopicConfig("T", 8, 8))
    assert queues_of(await assigned(caller, "c0")) == QUEUES
    await caller.peers.close()


async def test_the_assignment_includes_the_queues_of_other_brokers(
    run: Run, config: Config, clock: Clock
) -> None:
    name_server = NameServer(NamesrvConfig(listen_port=0))
    await name_server.start()
    namesrv = f"127.0.0.1:{name_server.port}"
    found = []
    for name in ("broker-a", "broker-b"):
        folder = str(config().store_dir / name)
        settings = {"broker_name": name, "store_path_root_dir": folder, "namesrv_addr": namesrv}
        found.append(await run(config(**settings)))
    for broker, _ in found:
        broker.topics.put(TopicConfig("T", 2, 2))
    _, caller = found[0]
    await caller.heartbeat("c0", topics={"T": "*"})
    await set_mode(caller)
    places = [("broker-a", -1), ("broker-b", -1)]

    async def names() -> list[tuple[str, int]]:
        return [(q.broker_name, q.queue_id) for q in queues_of(await assigned(caller, "c0"))]

    async with asyncio.timeout(LONG):
        while await names() != places:  # the brokers register at their own pace
            clock.ms += 30_001
    await name_server.stop()
    clock.ms += 30_001  # the route has expired and can't be refreshed
    assert await names() == places
    assert await assigned(caller, "c0", topic="Other") == {}


# --- request modes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        ({"topic": "%RETRY%cg"}, codes.NO_PERMISSION, "retry topic is not allowed"),
        ({"topic": "Nowhere"}, codes.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ({"mode": "PUSH"}, codes.INVALID_PARAMETER, "must be PULL or POP"),
        (
            {"consumer_group": "no/group"},
            codes.SUBSCRIPTION_GROUP_NOT_EXIST,
            "illegal characters",
        ),
    ],
)
async def test_an_invalid_mode_is_refused_with_the_reason(
    members: list[Caller], wanted: dict[str, Any], code: int, why: str
) -> None:
    answer = await set_mode(members[0], **wanted)
    assert answer.code == code
    assert why in (answer.remark or "")


async def test_without_auto_creation_a_mode_for_an_unknown_group_is_refused(
    start: Start, config: Config
) -> None:
    broker = await start(config(auto_create_subscription_group=False))
    broker.topics.put(TopicConfig("T", 1, 1))
    caller = Caller(broker)
    assert (await set_mode(caller)).code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
    await caller.peers.close()


async def test_modes_are_stored_in_javas_file_and_copied_to_slaves(
    broker: Broker, members: list[Caller]
) -> None:
    await set_mode(members[0], share=3)
    mode = {"consumerGroup": "cg", "mode": "POP", "popShareQueueNum": 3, "topic": "T"}
    table = {"messageRequestModeMap": {"T": {"cg": mode}}}
    file = broker.root / "config" / "messageRequestMode.json"
    assert json.loads(file.read_bytes()) == table
    answer = await members[0].ask(codes.GET_ALL_MESSAGE_REQUEST_MODE)
    assert json.loads(answer.body or b"") == table
    loaded = RequestModes(file)
    loaded.load()
    found = loaded.get("T", "cg")
    assert found is not None
    assert (found.mode, found.pop_share_queue_num) == ("POP", 3)
    assert loaded.get("T", "other") is None


def test_the_number_of_modes_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.broker.pop.request_modes.MODES_MAX", 1)
    modes = RequestModes(tmp_path / "modes.json")
    modes.put(SetMessageRequestModeRequestBody("T", "a", "POP"))
    modes.put(SetMessageRequestModeRequestBody("T", "a", "PULL"))
    with pytest.raises(Exception, match="the limit is 1"):
        modes.put(SetMessageRequestModeRequestBody("T", "b", "POP"))
