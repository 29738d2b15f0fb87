"""Transactions: half messages, commit and rollback, and checks of open transactions."""

import asyncio
import json
from typing import Any

import pytest
from aerobee.broker.monitoring.metrics import families
from aerobee.broker.server import Broker
from aerobee.broker.transactions.transactions import GIVEN_UP_TOPIC, GROUP, HALF_TOPIC, OP_TOPIC
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from aerobee.protocol.command import Command
from aerobee.protocol.headers.transactions import CheckTransactionState, EndTransaction
from aerobee.protocol.message.message_id import offset_message_id
from aerobee.protocol.message.properties import PROPERTIES_BYTES_MAX
from aerobee.protocol.message.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    Record,
    decode_record,
)

from ...clocks import Clock
from ...waiting import LONG
from ..conftest import Caller, Config, Run, Start, parked, records


async def half(caller: Caller, body: bytes = b"half", **pairs: str) -> Record:
    """Send a half message; returns its record."""
    given = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1"} | pairs
    sent = await caller.send("T", body, queue_id=2, pairs=given)
    assert sent.code == codes.SUCCESS, sent.remark
    assert sent.fields()["queueId"] == "2"
    return (await stored(caller, HALF_TOPIC))[int(sent.fields()["queueOffset"])]


async def stored(caller: Caller, topic: str, queue_id: int = 0) -> list[Record]:
    return records(await caller.pull(topic, queue_id=queue_id))


async def end(
    caller: Caller, half: Record, outcome: int = TRANSACTION_COMMIT, **wanted: Any
) -> Command:
    values: dict[str, Any] = {
        "group": "pg",
        "queue_offset": half.queue_offset,
        "log_offset": half.log_offset,
        "outcome": outcome,
        "msg_id": "U1",
    }
    header = EndTransaction(**(values | wanted))
    return await caller.ask(codes.END_TRANSACTION, header)


def check(broker: Broker) -> None:
    start_ms = broker.now_ms()
    while broker.transactions.check(start_ms):
        pass


async def test_a_half_message_is_visible_only_after_its_commit(run: Run, config: Config) -> None:
    _, caller = await run(config())
    waiting = await half(caller, TAGS="A")
    assert waiting.sys_flag == 0
    assert waiting.properties["REAL_TOPIC"] == "T"
    assert waiting.properties["REAL_QID"] == "2"
    assert waiting.properties["__transactionId__"] == "U1"
    assert await stored(caller, "T", 2) == []
    assert (await end(caller, waiting)).code == codes.SUCCESS
    (seen,) = records(await caller.pull("T", queue_id=2, expression="A"))
    assert seen.body == b"half"
    assert seen.sys_flag == TRANSACTION_COMMIT
    assert seen.prepared_offset == waiting.log_offset
    assert seen.raw_properties == waiting.raw_properties


@pytest.mark.parametrize("outcome", [-1, 4, 99_999_999])
async def test_an_unknown_outcome_is_refused_with_the_valid_ones(
    run: Run, config: Config, outcome: int
) -> None:
    _, caller = await run(config())
    answer = await end(caller, await half(caller), outcome)
    assert answer.code == codes.SYSTEM_ERROR
    assert f"it is {outcome}, and can be 8 to commit, 12 to roll back" in str(answer.remark)
    assert len(await stored(caller, HALF_TOPIC)) == 1


async def test_a_commit_wakes_a_parked_pull(run: Run, config: Config) -> None:
    broker, caller = await run(config())
    waiting = await half(caller)
    pull = asyncio.create_task(caller.pull("T", queue_id=2, suspend_ms=15_000))
    await parked(broker, 1)
    async with asyncio.timeout(LONG):
        await end(caller, waiting)
        assert [record.body for record in records(await pull)] == [b"half"]


async def test_ended_transactions_are_recorded_together_and_not_checked(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await end(caller, await half(caller))
    await end(caller, await half(caller), TRANSACTION_ROLLBACK)
    assert await stored(caller, OP_TOPIC) == []
    clock.ms += 60_000
    check(broker)
    (op,) = await stored(caller, OP_TOPIC)
    assert op.body == b"0,1,"
    assert op.properties == {"TAGS": "d"}
    assert len(await stored(caller, HALF_TOPIC)) == 2
    assert len(await stored(caller, "T", 2)) == 1
    assert broker.offsets.get(HALF_TOPIC, GROUP, 0) == 2
    assert broker.offsets.get(OP_TOPIC, GROUP, 0) == 1


async def test_enough_ended_transactions_are_recorded_at_once(run: Run, config: Config) -> None:
    _, caller = await run(config(transaction_op_msg_max_size=4))
    await end(caller, await half(caller))
    await end(caller, await half(caller))
    assert [op.body for op in await stored(caller, OP_TOPIC)] == [b"0,1,"]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"group": "other"}, "The producer group wrong"),
        ({"queue_offset": 5}, "The transaction state table offset wrong"),
        ({"log_offset": 3}, "Find prepared transaction message failed"),
        ({"log_offset": -1}, "Find prepared transaction message failed"),
        ({"log_offset": 1 << 40}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_that_does_not_match_the_half_message_is_refused(
    run: Run, config: Config, wanted: dict[str, Any], why: str
) -> None:
    _, caller = await run(config())
    answer = await end(caller, await half(caller), **wanted)
    assert answer.code == codes.SYSTEM_ERROR
    assert (answer.remark or "").startswith(why)
    assert await stored(caller, "T", 2) == []


async def test_an_end_of_an_ordinary_message_is_refused(run: Run, config: Config) -> None:
    _, caller = await run(config())
    await caller.send("T", PGROUP="pg")
    (ordinary,) = await stored(caller, "T")
    answer = await end(caller, ordinary)
    assert "Find prepared transaction message failed" in (answer.remark or "")


async def test_an_end_needs_no_message_id(run: Run, config: Config) -> None:
    _, caller = await run(config())
    waiting = await half(caller)
    assert (await end(caller, waiting, msg_id=None)).code == codes.SUCCESS
    assert len(await stored(caller, "T", 2)) == 1


async def test_an_end_after_the_immunity_time_is_refused_unless_it_follows_a_check(
    run: Run, config: Config, clock: Clock
) -> None:
    _, caller = await run(config())
    waiting = await half(caller, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    clock.ms += 10_001
    assert (await end(caller, waiting)).code == codes.ILLEGAL_OPERATION
    assert (await end(caller, waiting, from_check=True)).code == codes.SUCCESS


@pytest.mark.parametrize("seconds", ["soon", "-1"])
async def test_an_invalid_immunity_time_means_the_default(
    run: Run, config: Config, clock: Clock, seconds: str
) -> None:
    broker, caller = await run(config(transaction_time_out=6_000))
    waiting = await half(caller, b"odd", CHECK_IMMUNITY_TIME_IN_SECONDS=seconds)
    other = await half(caller, b"common")
    clock.ms += 5_999
    check(broker)
    # The half message is stored again at the end; messages that are too young end the round.
    assert [one.body for one in await stored(caller, HALF_TOPIC)] == [b"odd", b"common", b"odd"]
    clock.ms += 1
    assert (await end(caller, other)).code == codes.SUCCESS
    clock.ms += 1
    assert (await end(caller, waiting)).code == codes.ILLEGAL_OPERATION
    assert (await end(caller, other)).code == codes.SUCCESS


async def test_a_broker_may_refuse_transactions(run: Run, config: Config) -> None:
    _, caller = await run(config(reject_transaction_message=True))
    answer = await caller.send("T", TRAN_MSG="true", PGROUP="pg")
    assert answer.code == codes.NO_PERMISSION
    assert (await caller.send("T", TRAN_MSG="false")).code == codes.SUCCESS


async def test_a_producer_is_asked_about_an_open_transaction(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    asked: asyncio.Queue[tuple[CheckTransactionState, bytes]] = asyncio.Queue()

    def on_check(header: CheckTransactionState, command: Command, _: Connection) -> None:
        asked.put_nowait((header, command.body or b""))

    row = Row(codes.CHECK_TRANSACTION_STATE, CheckTransactionState, on_check)
    producer = Peers(rows={row.code: row})
    beat = HeartbeatData("p1", [ProducerData("pg")], []).encode()
    await producer.request(caller.address, codes.HEART_BEAT, None, beat, 20)
    await half(caller)
    clock.ms += 5_999
    check(broker)
    assert len(await stored(caller, HALF_TOPIC)) == 1  # too young for a check
    clock.ms += 1
    check(broker)
    async with asyncio.timeout(LONG):
        header, body = await asked.get()
    _, copy = await stored(caller, HALF_TOPIC)
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (header.queue_offset, header.log_offset) == (1, copy.log_offset)
    assert (header.topic, header.msg_id, header.broker_name) == ("T", "U1", "broker-a")
    shown = decode_record(body)
    assert (shown.topic, shown.queue_id, shown.body) == ("T", 2, b"half")
    await end(caller, copy, from_check=True)
    clock.ms += 60_000
    check(broker)
    assert len(await stored(caller, HALF_TOPIC)) == 2
    assert len(await stored(caller, "T", 2)) == 1
    await producer.close()


async def test_a_transaction_is_given_up_after_the_maximum_of_checks(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(transaction_check_max=2))
    await half(caller)
    for _ in range(4):
        clock.ms += 30_000
        check(broker)
    times = [r.properties.get("TRANSACTION_CHECK_TIMES") for r in await stored(caller, HALF_TOPIC)]
    assert times == [None, "1", "2"]
    (lost,) = await stored(caller, GIVEN_UP_TOPIC)
    assert lost.body == b"half"
    assert broker.offsets.get(HALF_TOPIC, GROUP, 0) == 3


async def test_a_message_with_its_own_immunity_time_does_not_delay_others(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    slow = await half(caller, b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    await half(caller, b"quick")
    clock.ms += 10_000
    check(broker)
    _, _, moved, asked = await stored(caller, HALF_TOPIC)
    assert moved.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert asked.body == b"quick"
    await end(caller, slow)
    await end(caller, asked)
    clock.ms += 200_000
    check(broker)
    assert len(await stored(caller, HALF_TOPIC)) == 4
    assert broker.offsets.get(OP_TOPIC, GROUP, 0) == 1


@pytest.mark.parametrize("immunity", ["", "100"], ids=["counted", "immune"])
async def test_a_half_message_without_room_for_a_mark_is_given_up_and_holds_up_no_other(
    run: Run, config: Config, clock: Clock, immunity: str
) -> None:
    broker, caller = await run(config())
    pairs = {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity} if immunity else {}
    narrow = await half(caller, b"narrow", wide="v", **pairs)
    await end(caller, narrow)
    room = PROPERTIES_BYTES_MAX - len(narrow.raw_properties)
    wide = await half(caller, b"wide", wide="v" * (1 + room), **pairs)
    await half(caller, b"common")
    clock.ms += 10_000
    check(broker)
    (lost,) = await stored(caller, GIVEN_UP_TOPIC)
    assert (lost.body, lost.raw_properties) == (b"wide", wide.raw_properties)
    halves = await stored(caller, HALF_TOPIC)
    assert [(one.body, one.properties.get("TRANSACTION_CHECK_TIMES")) for one in halves[3:]] == [
        (b"common", "1")
    ]


async def test_a_transaction_older_than_the_retention_time_is_given_up(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(file_reserved_time=2, transaction_check_max=1_000))
    await half(caller)
    # The client sets the born time; it equals the start of the broker's test clock.
    clock.ms += 2 * 3_600_000
    check(broker)
    assert await stored(caller, GIVEN_UP_TOPIC) == []
    clock.ms += 1
    check(broker)
    (lost,) = await stored(caller, GIVEN_UP_TOPIC)
    assert lost.body == b"half"
    assert broker.offsets.get(HALF_TOPIC, GROUP, 0) == 2


async def resume(caller: Caller, record: Record) -> Command:
    msg_id = offset_message_id(record.store_host, record.log_offset)
    return await caller.ask(codes.RESUME_CHECK_HALF_MESSAGE, {"topic": "T", "msgId": msg_id})


async def test_a_transaction_that_was_given_up_can_be_resumed(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(transaction_check_max=1))
    await half(caller)
    for _ in range(3):
        clock.ms += 30_000
        check(broker)
    (lost,) = await stored(caller, GIVEN_UP_TOPIC)
    assert (await resume(caller, lost)).code == codes.SUCCESS
    waiting = (await stored(caller, HALF_TOPIC))[-1]
    assert (waiting.body, waiting.properties["TRANSACTION_CHECK_TIMES"]) == (b"half", "0")
    assert (await end(caller, waiting)).code == codes.SUCCESS
    assert [record.body for record in await stored(caller, "T", 2)] == [b"half"]


async def test_only_a_transaction_that_was_given_up_can_be_resumed(
    run: Run, config: Config
) -> None:
    _, caller = await run(config())
    waiting = await half(caller)
    answer = await resume(caller, waiting)
    assert answer.code == codes.SYSTEM_ERROR
    assert "no message of TRANS_CHECK_MAX_TIME_TOPIC begins at" in (answer.remark or "")
    answer = await caller.ask(codes.RESUME_CHECK_HALF_MESSAGE, {"msgId": "no id"})
    assert answer.code == codes.SYSTEM_ERROR
    assert len(await stored(caller, HALF_TOPIC)) == 1


def metrics(broker: Broker) -> dict[str, float]:
    """The values of the metrics about transactions, by name and, if they have one, topic."""
    found: dict[str, float] = {}
    for name, _, _, labels, values in families(broker):
        if "transaction" in name or name.endswith(
            ("half_messages", "_commit_messages_total", "rollback_messages_total")
        ):
            for label_values, value in filter(None, values):
                assert isinstance(value, int | float)
                topic = dict(zip(labels, label_values, strict=True)).get("topic")
                key = name.removesuffix("_total") + (f" {topic}" if topic else "")
                found[key.replace("rocketmq_", "").replace("aerobee_", "")] = value
    return found


async def test_half_messages_commits_and_rollbacks_are_counted(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(transaction_check_max=1))
    await end(caller, await half(caller))
    await end(caller, await half(caller), TRANSACTION_ROLLBACK)
    await half(caller)
    await half(caller)
    assert metrics(broker) == {
        "half_messages T": 2,
        "commit_messages T": 1,
        "rollback_messages T": 1,
        "transaction_checks": 0,
        "transactions_given_up": 0,
    }
    for _ in range(3):
        clock.ms += 30_000
        check(broker)
    assert metrics(broker)["half_messages T"] == 0
    assert metrics(broker)["transactions_given_up"] == 2
    # The half topic counts four messages, the topic itself the committed one.
    assert broker.stats.puts(HALF_TOPIC).messages == 4
    assert broker.stats.puts("T").messages == 1


async def test_the_count_of_half_messages_persists_over_a_restart(run: Run, config: Config) -> None:
    broker, caller = await run(config())
    await half(caller)
    await caller.peers.close()
    await broker.stop()
    saved = json.loads((broker.root / "config" / "transactionMetrics.json").read_text())
    assert saved["transactionCount"]["T"]["count"] == 1
    broker, caller = await run(config())
    assert metrics(broker)["half_messages T"] == 1
    await end(caller, (await stored(caller, HALF_TOPIC))[0])
    assert metrics(broker)["half_messages T"] == 0


async def test_a_half_message_that_is_too_long_is_not_counted(run: Run, config: Config) -> None:
    broker, caller = await run(config(max_message_size=10))
    sent = await caller.send("T", b"x" * 11, TRAN_MSG="true", PGROUP="pg")
    assert sent.code == codes.MESSAGE_ILLEGAL
    assert metrics(broker).get("half_messages T", 0) == 0


async def test_with_sync_flush_a_commit_is_acknowledged_after_it_is_on_disk(
    start: Start, config: Config
) -> None:
    broker = await start(config(flush_disk_type="SYNC_FLUSH"))
    caller = Caller(broker)
    given = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1"}
    await caller.send("T", b"half", queue_id=2, pairs=given)
    (waiting,) = await stored(caller, HALF_TOPIC)
    assert (await end(caller, waiting)).code == codes.SUCCESS
    assert broker.store.durable_end == broker.store.log_end
    await caller.peers.close()


async def test_open_transactions_are_checked_after_a_restart(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await half(caller, b"open")
    await end(caller, await half(caller, b"ended"))
    await caller.peers.close()
    await broker.stop()
    clock.ms += 60_000
    broker, caller = await run(config())
    check(broker)
    first, second, asked = await stored(caller, HALF_TOPIC)
    assert (first.body, second.body, asked.body) == (b"open", b"ended", b"open")
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
