"""Timer messages over a broker's socket: when they come, what they carry, what is refused."""

import json

import pytest
from aerobee.broker.scheduled.delays import SCHEDULE_TOPIC
from aerobee.broker.server import Broker
from aerobee.broker.transactions.transactions import HALF_TOPIC, OP_TOPIC
from aerobee.protocol import codes
from aerobee.protocol.headers.send import ConsumerSendMsgBack, RecallMessage
from aerobee.protocol.headers.transactions import EndTransaction
from aerobee.protocol.message import properties, recall_handle
from aerobee.protocol.message.recall_handle import RecallHandle
from aerobee.protocol.message.record import Record

from ...clocks import Clock
from ..conftest import BORN_MS, Caller, Config, Run, counted, records

ON_BOTH_ENGINES = True

WHEEL_TOPIC = "rmq_sys_wheel_timer"
DAY_MS = 86_400_000


def work(broker: Broker) -> None:
    """All that the timers and the delay levels can do at this moment of the clock."""
    assert broker.timers is not None
    while broker.timers.step(broker.now_ms()):
        pass
    while broker.delays.deliver(broker.now_ms()):
        pass


async def found(caller: Caller, topic: str = "T", offset: int = 0) -> list[Record]:
    return records(await caller.pull(topic, offset))


async def bodies(caller: Caller, topic: str = "T") -> list[bytes]:
    return [record.body for record in await found(caller, topic)]


async def recall(caller: Caller, handle: str, topic: str = "T") -> tuple[int, str | None]:
    answer = await caller.ask(codes.RECALL_MESSAGE, RecallMessage(topic, handle, "pg"))
    return answer.code, answer.remark


@pytest.mark.parametrize(
    ("pairs", "wait_ms"),
    [
        ({"TIMER_DELAY_SEC": "5"}, 5_000),
        ({"TIMER_DELAY_MS": "3500"}, 3_500),
        ({"TIMER_DELAY_MS": "1"}, 1),
        ({"TIMER_DELIVER_MS": str(BORN_MS + 4_001)}, 4_001),
        ({"TIMER_DELIVER_MS": str(BORN_MS + 4_000)}, 4_000),
        # The first of these three that is there counts.
        (
            {"TIMER_DELIVER_MS": "0", "TIMER_DELAY_MS": "9000", "TIMER_DELAY_SEC": "2"},
            2_000,
        ),
        ({"TIMER_DELIVER_MS": "0", "TIMER_DELAY_MS": "9000"}, 9_000),
    ],
)
@pytest.mark.parametrize("start_ms", [0, 1, 999])
async def test_a_timer_message_comes_at_the_end_of_its_tick_and_never_early(
    run: Run, config: Config, clock: Clock, pairs: dict[str, str], wait_ms: int, start_ms: int
) -> None:
    broker, caller = await run(config())
    clock.ms += start_ms
    answer = await caller.send("T", b"late", queue_id=1, TAGS="x", pairs=pairs)
    fields = answer.fields()
    assert (answer.code, fields["queueId"], fields["queueOffset"]) == (0, "1", "0")
    due_ms = (
        BORN_MS + wait_ms + (0 if "TIMER_DELIVER_MS" in pairs and len(pairs) == 1 else start_ms)
    )
    for moment in (clock.ms, due_ms - 1):
        clock.ms = moment
        work(broker)
        assert (await caller.pull("T", queue_id=1)).code != 0, "too early"
    clock.ms = -(-due_ms // 1_000) * 1_000  # the end of the tick
    work(broker)
    work(broker)
    (record,) = records(await caller.pull("T", queue_id=1, expression="x"))
    assert (record.body, record.queue_id, record.store_ms) == (b"late", 1, clock.ms)


async def test_a_timer_message_counts_for_its_topic_once_it_has_come_there(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"late", TIMER_DELAY_SEC="5")
    assert counted(broker) == {WHEEL_TOPIC: 1}
    clock.ms += 6_000
    work(broker)
    assert counted(broker) == {WHEEL_TOPIC: 1, "T": 1}
    (record,) = await found(caller)
    assert broker.stats.puts("T").bytes == record.size


async def test_a_delivered_message_carries_what_java_puts_on_it(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"late", queue_id=0, KEYS="k", UNIQ_KEY="U1", TIMER_DELAY_MS="3500")
    (waiting,) = await found(caller, WHEEL_TOPIC)
    work(broker)
    clock.ms += 4_000
    work(broker)
    (record,) = await found(caller)
    expected = {
        "KEYS": "k",
        "UNIQ_KEY": "U1",
        "TIMER_DELAY_MS": "3500",
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "TIMER_OUT_MS": str(BORN_MS + 3_000),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert waiting.properties == expected
    assert record.properties == expected | {
        "TIMER_ENQUEUE_MS": str(BORN_MS),
        "TIMER_DEQUEUE_MS": str(clock.ms),
    }
    assert (record.born_ms, record.flag) == (waiting.born_ms, waiting.flag)


async def test_messages_of_one_tick_come_in_the_order_of_their_sends(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    for number in range(70):
        await caller.send("T", b"%d" % number, TIMER_DELAY_MS=str(5_900 - number))
    await caller.send("T", b"first", TIMER_DELAY_SEC="1")
    clock.ms += 60_000
    work(broker)
    got = await bodies(caller)
    assert got == [b"first"] + [b"%d" % number for number in range(31)]


async def test_what_is_sent_goes_into_the_wheel_without_being_read_again(
    run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, caller = await run(config())
    assert broker.timers is not None
    await caller.send("T", b"now")
    sent = [b"%d" % number for number in range(8)]
    for number, body in enumerate(sent):
        await caller.send("T", body, TIMER_DELAY_SEC=str(2 + number % 3), UNIQ_KEY=f"U{number}")
        await caller.send("T", b"level", queue_id=1, DELAY="2")

    def nothing(place: int) -> bytes | None:
        raise AssertionError(f"{place} is read")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "message_at", nothing)
        while broker.timers.step(broker.now_ms()):
            pass
    assert broker.timers.state.waiting == broker.timers.enqueued == len(sent)
    assert broker.timers.metrics.counts["T"].count == len(sent)
    clock.ms += 10_000
    work(broker)
    assert await bodies(caller) == [b"now", *sent[0::3], *sent[1::3], *sent[2::3]]


async def test_a_delivered_message_wakes_its_reader(run: Run, config: Config, clock: Clock) -> None:
    import asyncio

    broker, caller = await run(config())
    await caller.send("T", b"now")
    waiting = asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000))
    await caller.send("T", b"late", TIMER_DELAY_SEC="1")
    clock.ms += 2_000
    work(broker)
    assert [record.body for record in records(await waiting)] == [b"late"]


@pytest.mark.parametrize(
    "pairs",
    [
        {"TIMER_DELIVER_MS": str(BORN_MS)},
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "0"},
        # As a consumer has it that passes a message on which a timer delivered.
        {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1699999999000"},
    ],
)
async def test_a_time_that_has_come_is_no_timer(
    run: Run, config: Config, pairs: dict[str, str]
) -> None:
    _broker, caller = await run(config())
    answer = await caller.send("T", b"now", pairs=pairs)
    assert "recallHandle" not in answer.fields()
    assert await bodies(caller) == [b"now"]


async def test_a_delay_level_wins_over_a_time(run: Run, config: Config, clock: Clock) -> None:
    broker, caller = await run(config())
    answer = await caller.send("T", b"late", DELAY="1", TIMER_DELAY_SEC="60", TIMER_DELIVER_MS="x")
    assert (answer.code, "recallHandle" in answer.fields()) == (0, False)
    clock.ms += 1_000
    work(broker)
    (record,) = await found(caller)
    assert not {name for name in record.properties if name.startswith("TIMER")}


BAD = [
    ({"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC is 'soon'; it must be a number of seconds"),
    ({"TIMER_DELAY_SEC": "1.5"}, "TIMER_DELAY_SEC is '1.5'; it must be a number of seconds"),
    ({"TIMER_DELAY_SEC": "-1"}, "TIMER_DELAY_SEC is '-1'; it must be a number of seconds"),
    ({"TIMER_DELAY_MS": "-5"}, "TIMER_DELAY_MS is '-5'; it must be a number of ms, 0 or more"),
    ({"TIMER_DELIVER_MS": "-5"}, "TIMER_DELIVER_MS is '-5'; it must be a number of ms"),
    ({"TIMER_DELIVER_MS": "²"}, "TIMER_DELIVER_MS is '²'; it must be a number of ms"),
    ({"TIMER_DELIVER_MS": "9" * 19}, "TIMER_DELIVER_MS is '9999999999999999999'; it must be"),
    ({"TIMER_DELIVER_MS": "9223372036854775807"}, "should not be bigger than the max delay"),
    ({"TIMER_DELAY_SEC": "2147483648"}, "a wait of 2147483648000 ms: the delay time should not"),
    ({"DELAY": "soon"}, "the delay level is 'soon'; DELAY must be a number, 1 to 18"),
    ({"DELAY": "99999999999"}, "the delay level is '99999999999'; DELAY must be a number"),
]


@pytest.mark.parametrize(("pairs", "remark"), BAD)
async def test_a_time_that_can_not_be_is_refused_with_its_reason(
    run: Run, config: Config, clock: Clock, pairs: dict[str, str], remark: str
) -> None:
    broker, caller = await run(config())
    answer = await caller.send("T", b"never", pairs=pairs)
    # RocketMQ fails over a level that is no number, before it reads the message.
    assert answer.code == (codes.SYSTEM_ERROR if "DELAY" in pairs else codes.MESSAGE_ILLEGAL)
    assert remark in (answer.remark or "")
    assert answer.fields()["MSG_REGION"] == "DefaultRegion"
    half = await caller.send("T", b"never", TRAN_MSG="true", PGROUP="pg", pairs=pairs)
    assert (half.code, half.remark) == (answer.code, answer.remark)
    clock.ms += 10 * DAY_MS
    work(broker)
    assert await bodies(caller) == []


async def test_there_is_no_cap_unless_one_is_configured(
    run: Run, config: Config, clock: Clock
) -> None:
    _broker, caller = await run(config())
    assert (await caller.send("T", TIMER_DELAY_SEC=str(3 * 365 * 86_400))).code == 0
    _broker, caller = await run(
        config(timer_max_delay_sec=60, store_path_root_dir=str(config().store_dir) + "2")
    )
    assert (await caller.send("T", TIMER_DELAY_SEC="60")).code == 0
    assert (await caller.send("T", TIMER_DELIVER_MS=str(clock.ms + 60_000))).code == 0
    for name, value in (
        ("TIMER_DELAY_SEC", "61"),
        ("TIMER_DELAY_MS", "60001"),
        ("TIMER_DELIVER_MS", str(clock.ms + 60_001)),
    ):
        answer = await caller.send("T", pairs={name: value})
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert "the max delay 60000ms (timerMaxDelaySec)" in (answer.remark or "")


async def test_without_the_wheel_a_time_is_refused_and_its_files_are_left_alone(
    run: Run, config: Config
) -> None:
    broker, caller = await run(config(timer_wheel_enable=False))
    answer = await caller.send("T", TIMER_DELAY_SEC="5")
    assert answer.code == codes.SYSTEM_ERROR
    assert "accurate timer message is not enabled, timerWheelEnable is false" in (
        answer.remark or ""
    )
    assert not (broker.root / "timerwheel").exists()
    info = json.loads((await caller.ask(codes.GET_BROKER_RUNTIME_INFO)).body or b"")["table"]
    assert (info["timerCongestNum"], info["timerEnqueueTps"]) == ("0", "0.0")


async def test_a_tick_takes_so_many_messages_and_no_more(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(timer_congest_num_each_slot=2))
    for _ in range(2):
        assert (await caller.send("T", TIMER_DELAY_SEC="5")).code == 0
        work(broker)
    answer = await caller.send("T", TIMER_DELAY_SEC="5")
    assert answer.code == codes.SYSTEM_ERROR
    assert "timer message is under flow control: 2 messages wait" in (answer.remark or "")
    assert (await caller.send("T", TIMER_DELAY_SEC="6")).code == 0


async def test_properties_without_room_for_the_brokers_own_are_refused(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    answer = await caller.send("T", TIMER_DELAY_SEC="1", mine="x" * 32_300)
    assert answer.code == codes.MESSAGE_ILLEGAL
    assert "the limit is 32255; put some of it into the body" in (answer.remark or "")
    assert (await caller.send("T", b"fits", TIMER_DELAY_SEC="1", mine="x" * 32_150)).code == 0
    clock.ms += 2_000
    work(broker)
    (record,) = await found(caller)
    assert "TIMER_DEQUEUE_MS" in record.properties


async def test_a_batch_is_not_to_wait(run: Run, config: Config) -> None:
    _broker, caller = await run(config())
    for pairs in ({"DELAY": "3"}, {"TIMER_DELAY_SEC": "3"}):
        answer = await caller.send("T", b"x" * 30, batch=True, pairs=pairs)
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert "a batch can't wait for its time" in (answer.remark or "")


async def test_what_anybody_writes_into_the_wheels_topic_harms_nothing(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    out = str(clock.ms)
    for pairs in (
        {},
        {"TIMER_OUT_MS": "x", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": out, "REAL_TOPIC": "../../evil", "REAL_QID": "0"},
        {"TIMER_OUT_MS": out, "REAL_TOPIC": "T", "REAL_QID": "99999999"},
        {"TIMER_OUT_MS": out, "REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"TIMER_OUT_MS": out},
    ):
        assert (await caller.send(WHEEL_TOPIC, b"junk", queue_id=0, pairs=pairs)).code == 0
    await caller.send("T", b"good", TIMER_DELAY_SEC="1")
    clock.ms += 2_000
    work(broker)
    assert await bodies(caller) == [b"good"]
    assert not list(broker.root.parent.glob("evil*"))
    assert broker.store.queues("T") == [0]


@pytest.mark.parametrize("topic", [WHEEL_TOPIC, OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC])
@pytest.mark.parametrize("wait_ms", [0, 1_000])
async def test_a_timer_leads_to_no_topic_that_clients_may_not_send_to(
    run: Run, config: Config, clock: Clock, topic: str, wait_ms: int
) -> None:
    broker, caller = await run(config())
    place = {"REAL_TOPIC": topic, "REAL_QID": "0", "TIMER_OUT_MS": str(clock.ms + wait_ms)}
    assert (await caller.send(WHEEL_TOPIC, b"0,1,2", pairs=place)).code == 0
    assert broker.timers is not None
    for _ in range(20):  # in the wheel's own topic it would come again at each of these
        clock.ms += 200
        broker.timers.step(clock.ms)
    assert broker.store.max_offset(WHEEL_TOPIC, 0) == 1
    assert topic == WHEEL_TOPIC or not broker.store.queues(topic)


# ---- taking back


async def test_a_message_that_is_taken_back_never_comes_and_its_neighbours_do(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(recall_message_enable=True))
    handles = {}
    for body in (b"one", b"two", b"three"):
        answer = await caller.send("T", body, UNIQ_KEY=f"K{body.decode()}", TIMER_DELAY_MS="5500")
        handles[body] = answer.fields()["recallHandle"]
    assert recall_handle.decode(handles[b"two"]) == RecallHandle(
        "T", "broker-a", BORN_MS + 5_001, "Ktwo"
    )
    work(broker)
    clock.ms += 4_000
    answer = await caller.ask(codes.RECALL_MESSAGE, RecallMessage("T", handles[b"two"], "pg"))
    assert (answer.code, answer.fields()["msgId"]) == (0, "Ktwo")
    waiting = (await found(caller, WHEEL_TOPIC))[-1]
    assert waiting.body == b"0"
    assert waiting.properties == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": "T+Ktwo",
        "UNIQ_KEY": "Ktwo",
        "TIMER_DELIVER_MS": str(BORN_MS + 5_001),
        "BORN_TIMESTAMP": str(clock.ms),
        "PGROUP": "pg",
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "TIMER_OUT_MS": str(BORN_MS + 5_000),
    }
    clock.ms += 10_000
    work(broker)
    assert await bodies(caller) == [b"one", b"three"]
    assert broker.timers is not None
    assert broker.timers.state.waiting == 0


async def test_one_recall_takes_back_a_message_that_was_sent_twice_and_none_of_it_is_counted(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(recall_message_enable=True))
    for _ in range(2):  # as a producer does that heard nothing
        answer = await caller.send("T", b"twice", UNIQ_KEY="K", TIMER_DELAY_SEC="5")
    await caller.send("T", b"once", TIMER_DELAY_SEC="20")
    assert await recall(caller, answer.fields()["recallHandle"]) == (0, None)
    unused = recall_handle.encode("T", "broker-a", BORN_MS + 7_001, "other")
    assert await recall(caller, unused) == (0, None)
    clock.ms += 10_000
    work(broker)
    assert await bodies(caller) == []
    table = json.loads((await caller.ask(codes.GET_TIMER_METRICS)).body or b"")["timingCount"]
    assert table["T"]["count"] == 1
    assert broker.timers is not None
    assert broker.timers.state.waiting == 1


async def test_taking_back_holds_across_a_restart_and_for_far_away_times(
    run: Run, config: Config, clock: Clock
) -> None:
    wanted = config(recall_message_enable=True, timer_roll_window_slot=100)
    broker, caller = await run(wanted)
    handles = []
    for body in (b"near", b"far", b"stays"):
        wait = "350" if body == b"near" else "500"
        answer = await caller.send("T", body, UNIQ_KEY=body.decode(), TIMER_DELAY_SEC=wait)
        handles.append(answer.fields()["recallHandle"])
    for handle in handles[:2]:
        assert await recall(caller, handle) == (0, None)
    await caller.peers.close()
    await broker.stop()
    broker, caller = await run(wanted)
    for _ in range(60):
        clock.ms += 10_000
        work(broker)
    assert await bodies(caller) == [b"stays"]
    assert broker.timers is not None
    assert broker.timers.state.waiting == 0
    assert broker.timers.metrics.counts["T"].count == 0


async def test_a_recall_must_be_allowed_and_be_for_a_message_that_waits_here(
    run: Run, config: Config, clock: Clock
) -> None:
    _broker, caller = await run(config())
    good = recall_handle.encode("T", "broker-a", clock.ms + 5_000, "K")
    code, remark = await recall(caller, good)
    assert code == codes.NO_PERMISSION
    assert "operation is forbidden; switch recallMessageEnable on" in (remark or "")

    folder = str(config().store_dir)
    on = config(
        recall_message_enable=True, timer_max_delay_sec=60, store_path_root_dir=folder + "2"
    )
    _broker, caller = await run(on)
    assert await recall(caller, good) == (
        codes.TOPIC_NOT_EXIST,
        "recall failed, the topic[T] not exist",
    )
    await caller.send("T")
    illegal = {
        "": "recall handle is invalid",
        recall_handle.encode("T", "broker-a", clock.ms + 5_000, ""): "recall handle is invalid",
        "*": "it is no base64 text",
        "ÄÖÜ": "it is no base64 text",
        "djE=": "not of the form v1 TOPIC BROKER TIME UNIQ_KEY",
        "djIgVCBicm9rZXItYSAxIEs=": "not of the form v1",
        "A" * 5_000: "the limit is 4096",
        "gICAgA==": "it is no base64 text",
        encoded("U", "broker-a", clock.ms + 5_000): "topic not match: the handle is of U",
        encoded("T", "other", clock.ms + 5_000): "the handle is of broker other, this is broker-a",
        encoded("T", "broker-a", clock.ms): "timestamp invalid: 0 ms are left",
        encoded("T", "broker-a", clock.ms + 60_000): "timestamp invalid: 60000 ms are left",
        encoded("T", "broker-a", -1): "timestamp invalid: -",
    }
    for handle, expected in illegal.items():
        code, remark = await recall(caller, handle)
        assert (code, expected in (remark or "")) == (codes.ILLEGAL_OPERATION, True), remark
    assert await recall(caller, encoded("T", "broker-a", clock.ms + 5_000)) == (0, None)
    assert await recall(caller, good.rstrip("=")) == (0, None), "Java takes it so too"


async def test_a_broker_that_takes_no_writes_takes_recalls_unless_told_otherwise(
    run: Run, config: Config, clock: Clock
) -> None:
    base = {"recall_message_enable": True, "broker_permission": 4}
    handle = encoded("DefaultCluster", "broker-a", clock.ms + 5_000)
    _broker, caller = await run(config(**base))
    assert await recall(caller, handle, "DefaultCluster") == (0, None)
    folder = str(config().store_dir) + "2"
    _broker, caller = await run(
        config(**base, allow_recall_when_broker_not_writeable=False, store_path_root_dir=folder)
    )
    code, remark = await recall(caller, handle, "DefaultCluster")
    assert code == codes.SERVICE_NOT_AVAILABLE
    assert "brokerPermission is 4" in (remark or "")


def encoded(topic: str, broker: str, time_ms: int) -> str:
    return recall_handle.encode(topic, broker, time_ms, "K")


# ---- with other kinds of messages


async def test_a_transactions_message_waits_from_its_commit_on(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    for number, pairs in enumerate(({"TIMER_DELAY_SEC": "5"}, {"DELAY": "2"})):
        answer = await caller.send(
            "T", b"half %d" % number, TRAN_MSG="true", PGROUP="pg", pairs=pairs
        )
        fields = answer.fields()
        assert "recallHandle" not in fields
        clock.ms += 10_000
        work(broker)
        place = int(fields["msgId"][16:], 16)
        header = EndTransaction("pg", int(fields["queueOffset"]), place, 8, fields["msgId"])
        assert (await caller.ask(codes.END_TRANSACTION, header)).code == 0
        work(broker)
        assert len(await bodies(caller)) == number, "it comes too early"
        clock.ms += 5_000
        work(broker)
    assert await bodies(caller) == [b"half 0", b"half 1"]


async def test_a_timer_message_that_fails_is_tried_again_like_any_other(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"hard", UNIQ_KEY="U", TIMER_DELAY_SEC="1")
    clock.ms += 2_000
    work(broker)
    (record,) = await found(caller)
    for times, wait_s in ((1, 10), (2, 30)):
        header = ConsumerSendMsgBack(record.log_offset, "cg", 0)
        assert (await caller.ask(codes.CONSUMER_SEND_MSG_BACK, header)).code == 0
        clock.ms += wait_s * 1_000 - 1
        work(broker)
        assert len(await bodies(caller, "%RETRY%cg")) == times - 1
        clock.ms += 1
        work(broker)
        record = (await found(caller, "%RETRY%cg"))[-1]
        assert (record.body, record.reconsume_times) == (b"hard", times)
        assert "TIMER_DELAY_SEC" not in record.properties


async def test_a_retry_that_a_client_sends_with_a_time_has_no_handle(
    run: Run, config: Config
) -> None:
    _broker, caller = await run(config())
    await caller.heartbeat(topics={"T": "*"})
    answer = await caller.send("%RETRY%cg", TIMER_DELAY_SEC="5", reconsume_times=1)
    assert (answer.code, "recallHandle" in answer.fields()) == (0, False)


async def test_runtime_info_tells_of_the_timers_under_javas_names(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())

    async def info() -> list[str]:
        body = (await caller.ask(codes.GET_BROKER_RUNTIME_INFO)).body or b""
        table = json.loads(body)["table"]
        names = ("ReadBehind", "OffsetBehind", "CongestNum", "EnqueueTps", "DequeueTps")
        return [table[f"timer{name}"] for name in names]

    assert broker.timers is not None
    broker.timers.sample(clock.ms)
    for wait in ("5", "5", "60"):
        await caller.send("T", TIMER_DELAY_SEC=wait)
    work(broker)
    clock.ms += 2_000
    broker.timers.sample(clock.ms)
    assert (await info())[1:] == ["0", "3", "1.5", "0.0"]
    clock.ms += 8_000
    work(broker)
    broker.timers.sample(clock.ms)
    assert await info() == ["0", "0", "1", "0.0", "0.2"]


async def test_slaves_are_told_how_far_the_timer_is_and_what_waits(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", TIMER_DELAY_SEC="5")
    await caller.send("U", TIMER_DELAY_SEC="5")
    work(broker)
    answer = await caller.ask(codes.GET_TIMER_CHECK_POINT)
    assert (answer.code, len(answer.body or b"")) == (0, 56)
    answer = await caller.ask(codes.GET_TIMER_METRICS)
    table = json.loads(answer.body or b"")["timingCount"]
    expected = {"count": 1, "timeStamp": clock.ms}
    assert table == {"T": expected, "U": expected}
    folder = str(config().store_dir) + "2"
    _broker, caller = await run(config(timer_wheel_enable=False, store_path_root_dir=folder))
    for code in (codes.GET_TIMER_CHECK_POINT, codes.GET_TIMER_METRICS):
        answer = await caller.ask(code)
        assert answer.code == codes.SYSTEM_ERROR
        assert "timerWheelEnable is false; switch it on" in (answer.remark or "")


async def test_the_unique_key_of_a_timer_message_is_a_property_of_the_answer(
    run: Run, config: Config
) -> None:
    _broker, caller = await run(config())
    fields = (await caller.send("T", TIMER_DELAY_SEC="5")).fields()
    handle = recall_handle.decode(fields["recallHandle"])
    assert handle.unique_key == fields["transactionId"]
    (record,) = await found(caller, WHEEL_TOPIC)
    assert record.properties[properties.UNIQ_KEY] == handle.unique_key
