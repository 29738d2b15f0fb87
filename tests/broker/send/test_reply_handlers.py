"""Request and reply: the answer of one client finds the producer that asked."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.send import ReplyMessage, SendMessage, SendMessageV1
from aerobee.protocol.message import properties

from ...waiting import LONG, until
from ..conftest import BORN_MS, Caller, Config, Start, records

TOPIC = "DefaultCluster_REPLY_TOPIC"


class Asker:
    """A producer that waits for replies and answers each push with `answer`."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.pushed: list[tuple[ReplyMessage, bytes]] = []
        self.answer: Response | None = Response()
        code = codes.PUSH_REPLY_MESSAGE_TO_CLIENT
        self.peers = Peers(rows={code: Row(code, ReplyMessage, self._on_push)})

    async def come(self, client_id: str = "asker", *groups: str) -> None:
        names = groups or ("pg",)
        beat = HeartbeatData(client_id, [ProducerData(name) for name in names], []).encode()
        await self.peers.request(self.caller.address, codes.HEART_BEAT, None, beat, 20)

    def _on_push(self, header: ReplyMessage, command: Command, _: Connection) -> Response | None:
        self.pushed.append((header, command.body or b""))
        return self.answer


@pytest.fixture
async def asker(caller: Caller) -> AsyncIterator[Asker]:
    asker = Asker(caller)
    yield asker
    await asker.peers.close()


async def reply(
    caller: Caller,
    body: bytes = b"the answer",
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    first_form: bool = False,
    **pairs: str,
) -> Command:
    given = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c-1", "MSG_TYPE": "reply"} | pairs
    text = properties.encode({key: value for key, value in given.items() if value}).decode()
    kind, code = SendMessage, codes.SEND_REPLY_MESSAGE_V2
    if first_form:
        kind, code = SendMessageV1, codes.SEND_REPLY_MESSAGE  # type: ignore[assignment]
    header = kind("rg", topic, "TBW102", 4, queue_id, 0, BORN_MS, 3, text)
    return await caller.ask(code, header, body)


@pytest.mark.parametrize("first_form", [False, True])
async def test_a_reply_reaches_the_one_who_asked_and_is_kept(
    broker: Broker, caller: Caller, asker: Asker, first_form: bool
) -> None:
    await asker.come()
    answer = await reply(caller, first_form=first_form)
    assert answer.code == codes.SUCCESS, answer.remark
    ((header, body),) = asker.pushed
    assert body == b"the answer"
    assert (header.topic, header.flag, header.born_ms) == (TOPIC, 3, BORN_MS)
    assert (header.reconsume_times, header.unit_mode) == (0, False)  # named, as RocketMQ does
    assert header.store_host == broker.address
    assert header.born_host.startswith("127.0.0.1:")
    pairs = properties.decode(header.properties or "")
    assert pairs["CORRELATION_ID"] == "c-1"
    assert int(pairs["PUSH_REPLY_TIME"]) == header.store_ms
    (kept,) = records(await caller.pull(TOPIC))
    assert kept.body == b"the answer"
    assert "PUSH_REPLY_TIME" not in kept.properties
    for marks in (pairs, kept.properties):
        assert (marks["MSG_REGION"], marks["TRACE_ON"]) == ("DefaultRegion", "true")
    fields = answer.fields()
    assert (fields["queueId"], fields["queueOffset"]) == ("0", "0")
    assert fields["msgId"].endswith(f"{kept.log_offset:016X}")
    assert fields["MSG_REGION"] == "DefaultRegion"


async def test_a_reply_that_is_kept_is_found_by_its_tag(caller: Caller, asker: Asker) -> None:
    await asker.come()
    await reply(caller, b"tagged", TAGS="paid")
    await reply(caller, b"plain")
    assert [record.body for record in records(await caller.pull(TOPIC, expression="paid"))] == [
        b"tagged"
    ]


async def test_a_reply_wakes_a_reader_of_its_topic(caller: Caller, asker: Asker) -> None:
    await asker.come()
    pull = asyncio.create_task(caller.pull(TOPIC, suspend_ms=15_000))
    await reply(caller)
    async with asyncio.timeout(LONG):
        assert [record.body for record in records(await pull)] == [b"the answer"]


async def test_a_broker_may_keep_no_replies(start: Start, config: Config) -> None:
    caller = Caller(await start(config(store_reply_message_enable=False)))
    asker = Asker(caller)
    await asker.come()
    answer = await reply(caller)
    assert (answer.code, answer.fields()["msgId"]) == (codes.SUCCESS, "0")
    refused = await reply(caller, REPLY_TO_CLIENT="nobody")
    assert refused.code == codes.SYSTEM_ERROR
    assert refused.fields() == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert records(await caller.pull(TOPIC)) == []
    await asker.peers.close()
    await caller.peers.close()


async def test_a_reply_to_a_client_that_left_is_refused_with_the_reason_and_kept(
    broker: Broker, caller: Caller, asker: Asker
) -> None:
    await asker.come()
    await asker.peers.close()
    await until(lambda: not broker.clients.find_producer("asker"))
    answer = await reply(caller)
    assert answer.code == codes.SYSTEM_ERROR
    assert (answer.remark or "").startswith(
        "push reply message fail, channel of <asker> not found."
    )
    assert len(records(await caller.pull(TOPIC))) == 1


async def test_a_reply_to_nobody_is_refused(caller: Caller) -> None:
    answer = await reply(caller, REPLY_TO_CLIENT="")
    assert answer.code == codes.SYSTEM_ERROR
    assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"


async def test_a_client_that_declines_is_named(caller: Caller, asker: Asker) -> None:
    await asker.come()
    asker.answer = Response(codes.SYSTEM_ERROR, remark="nobody waits for it")
    answer = await reply(caller)
    assert answer.code == codes.SYSTEM_ERROR
    assert "push reply message to asker fail. It answered 1 nobody waits for it" in (
        answer.remark or ""
    )


async def test_a_client_that_does_not_answer_in_time_is_named(
    caller: Caller, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.send.reply_handlers.PUSH_SECONDS", 0.05)
    await asker.come()
    asker.answer = None
    answer = await reply(caller)
    assert answer.code == codes.SYSTEM_ERROR
    assert (answer.remark or "").startswith("push reply message to asker fail. no answer")


async def test_a_client_that_came_back_is_found_at_its_new_connection(
    broker: Broker, caller: Caller, asker: Asker
) -> None:
    await asker.come()
    first = broker.clients.find_producer("asker")
    again = Asker(caller)
    await again.come()
    await asker.peers.close()
    await until(lambda: first is None or first.is_lost)
    assert (await reply(caller)).code == codes.SUCCESS
    assert len(again.pushed) == 1
    await again.peers.close()


async def test_a_client_stays_known_until_it_left_its_last_group(
    broker: Broker, caller: Caller, asker: Asker
) -> None:
    await asker.come("asker", "one", "two")
    connection = broker.clients.find_producer("asker")
    assert connection is not None
    broker.clients.unregister(connection, "asker", "one", None)
    assert broker.clients.find_producer("asker") is connection
    broker.clients.unregister(connection, "asker", "two", None)
    assert broker.clients.find_producer("asker") is None


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, codes.NO_PERMISSION),
        ({"topic": "../up"}, codes.INVALID_PARAMETER),
        ({"queue_id": 1}, codes.INVALID_PARAMETER),
    ],
)
async def test_a_reply_that_has_no_place_is_not_pushed(
    caller: Caller, asker: Asker, wanted: dict[str, object], code: int
) -> None:
    await asker.come()
    answer = await reply(caller, **wanted)  # type: ignore[arg-type]
    assert answer.code == code
    assert answer.fields() == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert asker.pushed == []


async def test_a_reply_for_a_topic_in_order_is_refused_where_the_broker_takes_no_writes(
    broker: Broker, caller: Caller, asker: Asker
) -> None:
    await asker.come()
    broker.topics.put(TopicConfig("Ordered", 1, 1, order=True))
    await caller.ask(codes.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4")
    assert (await reply(caller, topic="Ordered")).code == codes.NO_PERMISSION
    assert asker.pushed == []


async def test_a_reply_without_a_queue_goes_to_one_of_its_topic(
    caller: Caller, asker: Asker
) -> None:
    await asker.come()
    assert (await reply(caller, queue_id=-1)).fields()["queueId"] == "0"
