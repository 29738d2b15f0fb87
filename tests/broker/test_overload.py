"""Overload: waiting data is bounded, and each refusal gives its reason."""

import asyncio

import pytest
from aerobee.broker.runtime import key_indexing
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.memory_budget import UNSENT_BYTES_MAX, MemoryBudget
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pop import PopMessage
from aerobee.protocol.headers.pull import SUBSCRIPTION, SUSPEND, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message import properties
from aerobee.store.engine.messages import Message

from ..client.clock import Clock
from ..waiting import LONG, until
from .conftest import BORN_MS, Caller, Config, Start, parked

ON_BOTH_ENGINES = True

BODY_BYTES = 200 << 10


def pulls(count: int, suspend_ms: int = 0) -> bytes:
    """The frames of `count` pulls of the first message of topic T."""
    flags = SUBSCRIPTION | (SUSPEND if suspend_ms else 0)
    header = PullMessage("cg", "T", 0, 0, 1, flags, 0, suspend_ms, 0, "*").to_fields()
    frames = (encode_request(codes.PULL_MESSAGE, number, header) for number in range(count))
    return b"".join(frames)


async def read(reader: asyncio.StreamReader, count: int) -> list[Command]:
    decoder, found = FrameDecoder(), []  # type: tuple[FrameDecoder, list[Command]]
    async with asyncio.timeout(LONG):
        while len(found) < count:
            found += decoder.feed(await reader.read(1 << 20))
    return found


@pytest.mark.parametrize("wait", [False, True])
async def test_a_client_that_does_not_read_uses_a_bounded_part_of_the_memory(
    broker: Broker, caller: Caller, wait: bool
) -> None:
    """The pulls find the message at once, or are parked until it arrives."""
    await caller.send("T", b"x", queue_id=1)  # makes the topic
    if not wait:
        await caller.send("T", b"x" * BODY_BYTES)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 10)
    writer.write(pulls(200, 15_000 if wait else 0))
    if wait:
        await parked(broker, 200)
        await caller.send("T", b"x" * BODY_BYTES)
    budget = broker.server.scheduler.budget
    await until(lambda: budget.bytes > 0)
    await caller.send("T", b"others are served", queue_id=1)
    assert budget.bytes < UNSENT_BYTES_MAX + 2 * BODY_BYTES
    answers = await read(reader, 200)
    assert {answer.code for answer in answers} == {codes.SUCCESS}
    assert sorted(answer.opaque for answer in answers) == list(range(200))
    await until(lambda: budget.bytes == 0)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("kind", ["pull", "pop"])
async def test_a_message_for_many_parked_requests_is_not_in_memory_many_times(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await caller.send("T", b"x", queue_id=1)  # makes the topic
    budget, most = broker.server.scheduler.budget, [0]
    budget.bytes_max = BODY_BYTES
    add = MemoryBudget.add

    def counted(self: MemoryBudget, count: int) -> None:
        add(self, count)
        most.append(self.bytes)

    monkeypatch.setattr(MemoryBudget, "add", counted)
    pairs = []
    for number in range(10):
        pairs.append(await asyncio.open_connection("127.0.0.1", broker.port))
        pop = PopMessage(f"g{number}", "T", 0, 1, 60_000, 15_000, 0).to_fields()
        asked = encode_request(codes.POP_MESSAGE, 0, pop)
        pairs[-1][1].write(pulls(1, 15_000) if kind == "pull" else asked)
    polls = broker.pop.handlers.polls
    await until(lambda: broker.long_polls.count + polls.count == 10)
    await caller.send("T", b"x" * BODY_BYTES)
    answers = [(await read(reader, 1))[0] for reader, _ in pairs]
    assert {answer.code for answer in answers} == {codes.SUCCESS}
    assert max(most) < 3 * BODY_BYTES  # one response per wake-up, and one served beside it
    for _, writer in pairs:
        writer.close()
        await writer.wait_closed()


async def test_pulls_are_refused_with_the_reason_while_the_memory_budget_is_spent(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")
    budget = broker.server.scheduler.budget
    budget.add(2 * budget.bytes_max)  # as if readers that don't read had filled it
    answer = await caller.pull("T")
    assert answer.code == codes.SYSTEM_BUSY
    assert (answer.remark or "").startswith(f"[OVERLOAD]{2 * budget.bytes_max} bytes wait")
    assert "clientMemoryBytesMax" in (answer.remark or "")
    assert budget.refused == 1
    assert (await caller.send("T")).code == codes.SUCCESS
    budget.add(-2 * budget.bytes_max)
    assert (await caller.pull("T")).code == codes.SUCCESS


async def test_the_memory_budget_is_a_setting(start: Start, config: Config) -> None:
    broker = await start(config(client_memory_bytes_max=16 << 20))
    assert broker.server.scheduler.budget.bytes_max == 16 << 20


async def test_a_long_poll_over_the_limit_is_refused_as_busy(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.pull.long_polls.PARKED_PER_QUEUE_MAX", 2)
    await caller.send("T", queue_id=1)
    waiting = [asyncio.ensure_future(caller.pull("T", suspend_ms=15_000)) for _ in range(2)]
    await parked(broker, 2)
    refused = await caller.pull("T", suspend_ms=15_000)
    # After "nothing found" the client would pull again at once.
    assert refused.code == codes.SYSTEM_BUSY
    assert (refused.remark or "").startswith("[OVERLOAD]2 pulls wait for messages here")
    await caller.send("T")
    assert [(await pull).code for pull in waiting] == [codes.SUCCESS] * 2


LONG_TAG = "t" * 1_000_000


def pop_fields(**more: str) -> dict[str, str]:
    """The fields of a long-polling pop; NOTIFICATION has the same."""
    return {
        "consumerGroup": "cg",
        "topic": "T",
        "queueId": "0",
        "maxMsgNums": "32",
        "invisibleTime": "30000",
        "pollTime": "15000",
        "bornTime": "0",
        "initMode": "0",
    } | more


async def test_long_parked_requests_count_against_the_memory_budget_and_release_it(
    start: Start, config: Config
) -> None:
    # Long parked requests get a quarter: four of them.
    broker = await start(config(client_memory_bytes_max=16 << 20))
    caller, budget = Caller(broker), broker.server.scheduler.budget
    await caller.send("T", queue_id=1)

    def ask(number: int) -> asyncio.Future[Command]:
        header = PullMessage("cg", "T", 0, 0, 1, SUBSCRIPTION | SUSPEND, 0, 15_000, 0, "*")
        fields = header.to_fields()
        wanted = {
            0: (codes.PULL_MESSAGE, fields, LONG_TAG.encode()),
            1: (codes.PULL_MESSAGE, fields | {"subscription": "a||" + "t" * 9_000}, b""),
            3: (codes.POP_MESSAGE, pop_fields(other=LONG_TAG), b""),
            4: (codes.NOTIFICATION, pop_fields(other=LONG_TAG), b""),
        }[number]
        return asyncio.ensure_future(caller.ask(*wanted))

    first = [ask(number) for number in (0, 0, 0, 1)]
    await parked(broker, 4)
    assert 3_009_000 < budget.waiting < 3_010_000
    fourth = ask(3)
    await until(lambda: budget.waiting > 4_000_000)
    refused = await ask(0)
    assert refused.code == codes.SYSTEM_BUSY
    for reason in ("[OVERLOAD]this pull has 1000", "of 16777216 (clientMemoryBytesMax)", "shorter"):
        assert reason in (refused.remark or "")
    assert (await ask(3)).code == codes.POLLING_FULL
    assert (await ask(4)).fields()["pollingFull"] == "true"
    assert budget.refused == 3
    await caller.send("T", TAGS="a")
    assert {(await answer).code for answer in (*first, fourth)} == {codes.SUCCESS}
    assert budget.waiting == 0
    waits = [
        asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000)),
        ask(4),
    ]  # and requests that are parked when their client disconnects
    await until(lambda: broker.pop.handlers.notifications.count == 1)
    for task in waits:
        task.cancel()
    await caller.peers.close()
    await until(lambda: not broker.server.connections)
    broker.long_polls.sweep(broker.now_ms())
    broker.pop.handlers.tidy()
    assert budget.waiting == 0


async def test_replies_to_a_client_that_does_not_read_are_bounded_and_refused_with_a_reason(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.send.reply_handlers.PUSH_SECONDS", 1.0)
    monkeypatch.setattr("aerobee.broker.send.reply_handlers.PUSHED_BYTES_MAX", 3_500_000)
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 10)
    beat = b'{"clientID":"slow","producerDataSet":[{"groupName":"pg"}]}'
    writer.write(encode_request(codes.HEART_BEAT, 1, {}, beat))
    await until(lambda: broker.clients.find_producer("slow") is not None)
    text = properties.encode({"REPLY_TO_CLIENT": "slow"}).decode()
    header = SendMessage("rg", "T", "TBW102", 4, 0, 0, BORN_MS, 0, text)
    clock = Clock()
    asked = [
        asyncio.create_task(caller.ask(codes.SEND_REPLY_MESSAGE_V2, header, b"x" * 1_000_000))
        for _ in range(6)
    ]
    await until(lambda: sum(each.done() for each in asked) == 3)  # those that are refused
    await clock.advance(2)
    answers = await asyncio.gather(*asked)
    remarks = sorted(answer.remark or "" for answer in answers)
    assert sum("[OVERLOAD]3000000 bytes of replies are on their way" in r for r in remarks) == 3
    assert sum("no answer from" in r or "did not read" in r for r in remarks) == 3
    assert broker.server.scheduler.budget.bytes < 2 << 20  # written, but not read by the client
    writer.close()
    await until(lambda: broker.server.scheduler.budget.bytes == 0)


async def test_a_deferred_request_is_refused_while_the_memory_budget_is_spent(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.protocol.aio.connection.HELD_BYTES_MIN", 1_000)
    budget = broker.server.scheduler.budget
    budget.add(2 * budget.bytes_max)  # as if readers that don't read had filled it
    header = SendMessage("rg", "T", "TBW102", 4, 0, 0, BORN_MS, 0, "")
    for size, code in ((900, codes.SYSTEM_ERROR), (2_000, codes.SYSTEM_BUSY)):
        answer = await caller.ask(codes.SEND_REPLY_MESSAGE_V2, header, b"x" * size)
        assert answer.code == code  # an error: the reply is handled, no client asked for it
    assert "clientMemoryBytesMax" in (answer.remark or "")
    assert budget.bytes == 2 * budget.bytes_max
    budget.add(-2 * budget.bytes_max)


@pytest.mark.parametrize(
    ("is_shared", "brought", "parts"),
    [
        (False, 3, [2, 6, 2, 2]),
        (False, 4, [2, 8, 2, 2]),
        (True, 1, [2, 2, 2, 2]),
        (True, 3, [2, 6, 2, 2]),
    ],
)
async def test_the_index_takes_many_keys_in_parts_by_the_sends_of_a_tick(
    broker: Broker,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    is_shared: bool,
    brought: int,
    parts: list[int],
) -> None:
    monkeypatch.setattr(key_indexing, "MESSAGES_MIN", 2)
    monkeypatch.setattr(key_indexing, "MESSAGES_MAX", 6)
    monkeypatch.setattr(key_indexing, "ARRIVED_TIMES", 4)
    monkeypatch.setattr(key_indexing, "WAITING_MAX", 0)
    await broker.periodic.stop()  # it would empty the index backlog in between
    for _ in range(15):
        await caller.send("T", b"x")
    store = broker.store
    taken: list[int] = []
    indexed = store.index_pending

    def index_pending(most: int | None = None) -> int:
        done = indexed(most)
        taken.append(done)
        if len(taken) == 1:
            asyncio.get_running_loop().call_soon(bring)
        return done

    def bring() -> None:
        for number in range(brought):
            store.put(
                Message(("T", 0), 0, 0, 0, b"\0" * 8, b"y", b"UNIQ_KEY\x01%d\x02" % number, 0)
            )

    monkeypatch.setattr(store, "index_pending", index_pending)
    broker.server.scheduler.is_shared = is_shared
    await broker.key_indexing.run()
    assert taken[:4] == parts
    assert store.index_backlog == 0


async def test_keys_are_indexed_after_a_burst_or_over_a_limit(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_indexing, "MESSAGES_MIN", 2)
    monkeypatch.setattr(key_indexing, "WAITING_MAX", 10)
    await broker.periodic.stop()
    store, scheduler = broker.store, broker.server.scheduler
    for number in range(15):
        await caller.send("T", b"x")
        scheduler.is_shared = True
        await broker.key_indexing.run()
        assert store.index_backlog == (number + 1 if number < 10 else 9 + number % 2)
    scheduler.is_shared = False
    await broker.key_indexing.run()
    assert store.index_backlog <= 1
