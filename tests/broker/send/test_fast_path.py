"""The fast path stores the same bytes as the slow path and gives the same responses."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.monitoring.metrics import families
from aerobee.broker.server import Broker
from aerobee.harness.java_side import free_broker_port
from aerobee.protocol import codes
from aerobee.protocol.aio import chunks, connection, scheduler
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.aio.scheduler import QUANTUM_BYTES
from aerobee.protocol.bodies.access import PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.codec import header_json
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.kernels.send_table import SendTable
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.security.signature import signed
from aerobee.store.base.errors import StoreError
from aerobee.store.inspect.check import check
from aerobee.store.queues.consume_queue import ENTRY_BYTES, RESERVE_BYTES

from ...waiting import LONG, until
from ..conftest import BORN_MS, Caller, Config, records

ON_BOTH_LOOPS = True  # the loops read sockets in different orders
NOW_MS = BORN_MS + 60_000
READER_MIN = connection.READER_CONNECTIONS_MIN
TOPICS = ("orders", "bills", "made-by-a-send")
REQUESTS = 10_000  # of a comparison of both engines: 100,000 in five settings on two event loops
LAST = 1 << 20  # the opaque of a request behind all sends
WAITS = (
    "DELAY\x013\x02",
    "DELAY\x010\x02",
    "DELAY\x0199\x02",
    "DELAY\x011\x02",
    "TIMER_DELAY_MS\x0160000\x02",
    f"TIMER_DELIVER_MS\x01{NOW_MS + 5_000}\x02",
    "TIMER_DELAY_SEC\x017\x02",
    "TIMER_DELAY_MS\x010\x02",
)
INNER = (
    b"",
    b"TAGS\x01a\x02",
    b"TAGS\x01b\x02KEYS\x01x y\x02",
    b"UNIQ_KEY\x01u1\x02k\x01v",
    b"x\x01\n",
)
REFUSED = ("DELAY\x01no\x02", "TIMER_DELIVER_MS\x01-7\x02", "TIMER_DELAY_SEC\x01999999999999\x02")
# Properties that a broker reads more closely, and names that only begin like them.
CLOSER = (
    "TRAN_MSG\x01no\x02",
    "POP_CK\x01handle\x02",
    "INNER_NUM\x011\x02",
    "TIMER_OUT_MS\x015\x02",
    "__STARTDELIVERTIME\x015\x02",
    "INNER_MULTI_DISPATCH\x01%LMQ%a\x02",
    "DELAYED\x01no\x02",
    "TIMER_ROLL_TIMES\x011\x02",
    "TRAN_MSGS\x01true\x02",
    "INNER_BASE\x017\x02",
)


def unique(number: int) -> str:
    return f"UNIQ_KEY\x01AC11000100002A9F{number:08X}\x02"


ADMIN, SHOP = ("admin", "admin-secret"), ("shop", "shop-secret")


def sign(fields: dict[str, str], body: bytes, chance: random.Random) -> dict[str, str]:
    """The fields signed by a user; a few are unsigned or have a wrong signature."""
    lot = chance.random()
    if lot < 0.01:
        return fields
    if lot < 0.02:
        return signed(fields, body, "admin", "another")
    if lot < 0.03:
        return signed(fields, body, "nobody", "another")
    return signed(fields, body, *(SHOP if lot < 0.06 else ADMIN))


def send(
    number: int,
    chance: random.Random | None = None,
    *,
    is_signed: bool = False,
    **changes: object,
) -> bytes:
    """One request; the fields that `chance` picks mostly suit the fast path."""
    text = unique(number)
    topic, flag, code, queue_id = "orders", 0, codes.SEND_MESSAGE_V2, number % 4
    body = b"body %d" % number
    if chance is not None:
        topic = chance.choice(TOPICS)
        is_odd = chance.random() < 0.02
        queue_id = chance.randrange(12 if is_odd else 4)
        text += chance.choice(("", "", "TAGS\x01a\x02", "TAGS\x01b\x02KEYS\x01k1 k2\x02", "x\x01y"))
        if chance.random() < 0.1 and text.endswith("\x02"):
            text += chance.choice(("WAIT\x01true\x02", "WAIT\x01false\x02"))
        if chance.random() < 0.03 and text.endswith("\x02"):
            text += chance.choice(CLOSER)
        if chance.random() < 0.2 and text.endswith("\x02"):
            text += "__SHARDINGKEY\x01one\x02"
        if chance.random() < 0.3:
            if not text.endswith("\x02"):
                text += "\x02"
            text += chance.choice(REFUSED if is_odd else WAITS)
        flag = 2 if chance.random() < 0.05 else 0
        body = chance.randbytes(chance.choice((1, 8, 20, 300, 5_000)))
        if is_odd:
            text += "city\x01K\u00f6ln\x02"
        if chance.random() < 0.2:
            code = codes.SEND_BATCH_MESSAGE
            body = encode_batch(
                [
                    Entry(each, chance.randbytes(chance.randrange(1, 90)), chance.choice(INNER))
                    for each in range(chance.randrange(1, 20))
                ]
            )
            text = unique(number)
    header = SendMessage(
        "pg",
        topic,
        "TBW102",
        4,
        queue_id,
        0,
        BORN_MS,
        7,
        text,
        0,
        False,
        max_reconsume_times=16,
        batch=code == codes.SEND_BATCH_MESSAGE,
    )
    fields = header.to_fields() | {name: str(value) for name, value in changes.items()}
    if is_signed and chance is not None:
        fields = sign(fields, body, chance)
    return encode_request(code, number, fields, body, oneway=flag == 2)


class Client:
    """A raw connection; the broker sees `host` as its source address."""

    connection: Connection  # the broker's end

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = FrameDecoder(header_json.NOTHING_EXPECTED)

    @classmethod
    async def connect(cls, broker: Broker, host: bytes) -> "Client":
        before = set(broker.server.connections)
        client = cls(*await asyncio.open_connection("127.0.0.1", broker.port))
        await until(lambda: set(broker.server.connections) - before)
        (client.connection,) = set(broker.server.connections) - before
        client.connection.host = host
        return client

    async def answers(self, count: int) -> list[Command]:
        """The next `count` responses, in the order of their requests."""
        found: list[Command] = []
        async with asyncio.timeout(LONG):
            while len(found) < count:
                data = await self.reader.read(1 << 16)
                assert data, "the broker has closed the connection"
                found += self.decoder.feed(data)
        assert len(found) == count
        return sorted(found, key=lambda answer: answer.opaque)

    def close(self) -> None:
        self.writer.close()


def rounds(seed: int, *, is_signed: bool) -> Iterator[tuple[int, list[bytes], int]]:
    """Yields the client, its frames, and the number of responses it gets."""
    chance = random.Random(seed)
    number = 0
    while number < REQUESTS:
        count = chance.choice((1, 2, 5, 8, 12, 60, 300))
        frames = [send(number + step, chance, is_signed=is_signed) for step in range(count)]
        number += count
        yield chance.randrange(3), frames, sum(b'"flag":0' in frame for frame in frames)


async def store_all(broker: Broker, seed: int) -> list[tuple[int, object, object]]:
    """Sends the requests of `rounds` one after the other; returns the responses."""
    clients = [
        await Client.connect(broker, bytes((*ip, 0, 0, 8, number)))
        for number, ip in enumerate(((10, 0, 0, 1), (10, 0, 0, 2), (0xFD, *range(15))))
    ]
    told: list[tuple[int, object, object]] = []
    is_signed = broker.access is not None
    if broker.access is not None:
        broker.access.users.create(UserInfo(*SHOP))
        entry = PolicyEntryInfo("Topic:orders", ["Pub"], None, "Allow")
        broker.access.lists.put("shop", [PolicyInfo("Custom", [entry])])
    for number, frames, wanted in rounds(seed, is_signed=is_signed):
        clients[number].writer.write(b"".join(frames))
        for answer in await clients[number].answers(wanted):
            told.append((answer.code, bytes(answer.ext), answer.remark))
        if wanted < len(frames):  # oneway sends are stored before the next round
            clients[number].writer.write(encode_request(codes.GET_MIN_OFFSET, LAST))
            await clients[number].answers(1)
    for client in clients:
        client.close()
    return told


def files(folder: Path) -> dict[str, bytes]:
    """The files of a store that hold messages or entries, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("commitlog", "consumequeue", "index", "timerlog")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=[READER_MIN, 0])
async def fast(
    config: Config, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Broker]:
    """A broker that uses the fast path for any load, with and without the epoll reader."""
    monkeypatch.setattr(chunks, "CHUNKS_MIN", 0)
    monkeypatch.setattr(connection, "READER_CONNECTIONS_MIN", request.param)
    async with compiled_broker(config) as broker:
        yield broker


@asynccontextmanager
async def compiled_broker(config: Config) -> AsyncIterator[Broker]:
    """A broker with the fast path and the topic `orders`."""
    broker = Broker(config())
    await broker.start()
    await broker.engine.load()
    caller = Caller(broker)
    await caller.send("orders")  # creates the topic
    await caller.peers.close()
    yield broker
    await broker.stop()


def stored(broker: Broker) -> int:
    """The number of messages in the topic."""
    return sum(broker.store.max_offset("orders", queue_id) for queue_id in range(4))


async def test_many_concurrent_clients_may_send_frames_in_pieces(fast: Broker) -> None:
    chance = random.Random(7)

    async def work(number: int) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", fast.port))
        frames = b"".join(send(number * 1_000 + step) for step in range(100))
        at = 0
        while at < len(frames):
            size = chance.choice((1, 7, 19, 400, 3_000))
            client.writer.write(frames[at : at + size])
            at += size
            await asyncio.sleep(0)
        answers = await client.answers(100)
        assert {answer.code for answer in answers} == {codes.SUCCESS}
        assert [answer.opaque for answer in answers] == list(
            range(number * 1_000, number * 1_000 + 100)
        )
        client.close()

    await asyncio.gather(*map(work, range(20)))
    assert stored(fast) == 1 + 2_000


@pytest.mark.parametrize("is_engine_on", [True, False])
async def test_a_request_for_which_the_tables_had_no_room_at_first_is_checked_too(
    config: Config, monkeypatch: pytest.MonkeyPatch, is_engine_on: bool
) -> None:
    monkeypatch.setattr(chunks, "CHUNKS_MIN", 0)
    broker = Broker(config(**GUARDED))
    await broker.start()
    if is_engine_on:
        await broker.engine.load()

    def request(number: int, body: bytes, user: tuple[str, str], *, is_batch: bool) -> bytes:
        header = SendMessage(
            "pg",
            "orders",
            "TBW102",
            4,
            0,
            0,
            BORN_MS,
            0,
            unique(number),
            0,
            False,
            batch=is_batch,
        )
        code = codes.SEND_BATCH_MESSAGE if is_batch else codes.SEND_MESSAGE_V2
        return encode_request(code, number, signed(header.to_fields(), body, *user), body)

    def batch_and_forged(number: int, messages: int) -> bytes:
        body = encode_batch([Entry(each, b"x", b"") for each in range(messages)])
        return request(number, body, ADMIN, is_batch=True) + request(
            number + 1, b"forged", ("admin", "another"), is_batch=False
        )

    clients = [await Client.connect(broker, bytes((10, 0, 0, n, 0, 0, 8, n))) for n in (1, 2)]
    clients[0].writer.write(request(1, b"makes the topic", ADMIN, is_batch=False))
    await clients[0].answers(1)
    # Once the first batch is left out, since a forged request is behind it, the second has room.
    for number, (client, messages) in enumerate(zip(clients, (300, 900), strict=True)):
        client.writer.write(batch_and_forged(10 * number + 10, messages))
    for client in clients:
        good, bad = await client.answers(2)
        assert (good.code, bad.code) == (codes.SUCCESS, codes.NO_PERMISSION)
        client.close()
    assert stored(broker) == 1 + 1_200
    await broker.stop()


async def test_a_client_that_reads_late_gets_all_responses(fast: Broker) -> None:
    client = await Client.connect(fast, bytes(8))
    count = 30_000  # their responses exceed the socket buffers
    client.writer.write(b"".join(map(send, range(count))))
    await until(lambda: stored(fast) >= 10_000)
    answers = await client.answers(count)
    assert [answer.opaque for answer in answers] == list(range(count))
    assert stored(fast) == 1 + count
    client.close()


async def known(broker: Broker) -> Client:
    """A client that has sent messages, so that the queues exist."""
    client = await Client.connect(broker, bytes(8))
    client.writer.write(b"".join(map(send, range(4))))
    await client.answers(4)
    return client


@pytest.fixture
def shared(fast: Broker, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Keeps the quantum small, as for a light client; lists messages and bytes of each batch."""
    monkeypatch.setattr(fast.server.scheduler, "is_shared", True)
    monkeypatch.setattr(fast.server.scheduler, "_shared_until", float("inf"))
    monkeypatch.setattr(scheduler, "LIGHT_SECONDS", float("inf"))
    found: list[tuple[int, int]] = []
    put_table = fast.store.put_table

    def counting(table: SendTable, *rest: Any) -> bool:
        found.append((table.count, len(table.data)))
        return put_table(table, *rest)

    monkeypatch.setattr(fast.store, "put_table", counting)
    return found


async def test_heavy_senders_share_one_quantum_while_a_light_client_is_active(
    fast: Broker, shared: list[tuple[int, int]]
) -> None:
    clients = [await Client.connect(fast, bytes(8)) for _ in range(8)]
    much = 3 * QUANTUM_BYTES // len(send(0))
    frames = b"".join(map(send, range(much)))
    little = await known(fast)
    shared.clear()
    for client in clients:
        client.connection.data_received(frames)
    little.connection.data_received(send(1))
    for client in clients:
        assert [answer.opaque for answer in await client.answers(much)] == list(range(much))
    assert len(await little.answers(1)) == 1
    assert sum(count for count, _ in shared) == 8 * much + 1
    # At first each may have its quantum; then the server knows that they are heavy senders.
    first, *later = sorted((size for _, size in shared), reverse=True)
    assert first <= 8 * (QUANTUM_BYTES + len(send(1)))
    assert max(later) < QUANTUM_BYTES + 2 * len(send(1))
    for client in (*clients, little):
        client.close()


async def test_all_messages_of_a_client_take_the_fast_path_if_a_quantum_ends_within_one(
    fast: Broker, shared: list[tuple[int, int]]
) -> None:
    client = await known(fast)
    shared.clear()
    many = 200
    client.writer.write(b"".join(map(send, range(many))))
    assert [answer.opaque for answer in await client.answers(many)] == list(range(many))
    assert sum(count for count, _ in shared) == many
    client.close()


async def test_a_light_client_is_served_before_the_messages_of_others_are_stored(
    fast: Broker, shared: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = fast.server.scheduler
    much = await known(fast)
    little = await Client.connect(fast, bytes(8))
    written: list[int] = []
    put_table = fast.store.put_table

    def noting(*asked: Any) -> bool:
        written.append(ticks.served)
        return put_table(*asked)

    monkeypatch.setattr(fast.store, "put_table", noting)
    for _ in range(2):
        written.clear()
        before = ticks.served
        ticks.mark_heavy(much.connection)
        much.connection.data_received(send(1))
        little.connection.data_received(encode_request(codes.GET_BROKER_CONFIG, 2, {}))
        assert len(await much.answers(1)) == len(await little.answers(1)) == 1
        assert written == [before + 1]
    for client in (much, little):
        client.close()


async def test_a_large_batch_is_a_quantum_by_itself(
    fast: Broker, shared: list[tuple[int, int]]
) -> None:
    client = await known(fast)
    shared.clear()
    entries = [Entry(0, bytes(40), b"") for _ in range(80)]
    fields = ("pg", "orders", "TBW102", 4, 0, 0, BORN_MS, 7, unique(1), 0, False)
    header = SendMessage(*fields, max_reconsume_times=16, batch=True).to_fields()
    batch = encode_request(codes.SEND_BATCH_MESSAGE, 1, header, encode_batch(entries))
    assert QUANTUM_BYTES < len(batch) < 2 * QUANTUM_BYTES
    client.writer.write(batch * 10)
    assert len(await client.answers(10)) == 10
    assert [count for count, _ in shared] == [80] * 10
    client.close()


async def test_a_queue_at_the_end_of_its_reserved_room_stays_on_the_fast_path(
    fast: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[bool] = []
    put_table = fast.store.put_table

    def watched(*asked: Any) -> bool:
        put.append(put_table(*asked))
        return put[-1]

    monkeypatch.setattr(fast.store, "put_table", watched)
    client = await Client.connect(fast, bytes(8))
    client.writer.write(b"".join(map(send, range(40))))  # creates the queues
    await client.answers(40)
    put.clear()
    per_round = 4 * 30
    for _ in range(4 * RESERVE_BYTES // ENTRY_BYTES // per_round + 2):
        client.writer.write(b"".join(map(send, range(per_round))))
        assert {answer.code for answer in await client.answers(per_round)} == {codes.SUCCESS}
    assert put
    assert all(put)
    client.close()


async def test_messages_received_before_a_disconnect_are_stored(fast: Broker) -> None:
    client = await Client.connect(fast, bytes(8))
    client.writer.write(b"".join(map(send, range(50))))
    await client.writer.drain()
    client.writer.close()
    await until(lambda: not fast.server.connections)
    assert stored(fast) == 1 + 50


async def test_no_response_is_sent_if_the_log_write_fails(
    fast: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await Client.connect(fast, bytes(8))

    def fail() -> None:
        raise StoreError("no room")

    monkeypatch.setattr(fast.store, "write_staged", fail)
    client.writer.write(b"".join(map(send, range(10))))
    async with asyncio.timeout(LONG):
        with suppress(ConnectionError):
            assert await client.reader.read() == b""
    client.close()
    monkeypatch.undo()


async def test_after_a_fault_of_the_fast_reader_messages_take_the_slow_path(
    fast: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise IndexError("outside of the array")

    monkeypatch.setattr(SendTable, "read", fail)
    client = await Client.connect(fast, bytes(8))
    client.writer.write(b"".join(map(send, range(10))))
    assert {answer.code for answer in await client.answers(10)} == {codes.SUCCESS}
    assert stored(fast) == 1 + 10
    assert "outside of the array" in caplog.text
    client.close()


def counted(broker: Broker) -> dict[tuple[str, Sequence[str]], Any]:
    """The metrics of incoming messages; of a histogram the counts of its buckets."""
    names = (
        "rocketmq_messages_in_total",
        "rocketmq_throughput_in_total",
        "rocketmq_message_size",
        "rocketmq_timer_enqueue_total",
        "rocketmq_delay_message_latency_seconds",
    )
    found: dict[tuple[str, Sequence[str]], Any] = {}
    for name, _, _, _, values in families(broker):
        for labels, value in filter(None, values):
            if name in names:
                found[name, labels] = value[1] if isinstance(value, tuple) else value
            elif name == "rocketmq_rpc_latency_milliseconds" and "get_min_offset" not in labels:
                assert isinstance(value, tuple)
                found[name, labels] = sum(value[1])
    return found


SYNC = {"flush_disk_type": "SYNC_FLUSH"}
GUARDED = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"admin","password":"admin-secret"}',
}


@pytest.mark.parametrize(
    ("seed", "reader_min", "more"),
    [(0, 0, {}), (1, READER_MIN, {}), (2, 0, {}), (3, 0, SYNC), (4, 0, GUARDED)],
)
async def test_the_fast_path_stores_the_same_as_the_slow_path(
    config: Config,
    tmp_path: Path,
    seed: int,
    reader_min: int,
    more: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "CHUNKS_MIN", 0)
    monkeypatch.setattr(connection, "READER_CONNECTIONS_MIN", reader_min)
    found = []
    port = free_broker_port()  # the port is part of the messages
    for is_compiled in (False, True):
        folder = tmp_path / f"store-{is_compiled}"
        settings = config(
            store_path_root_dir=str(folder),
            listen_port=port,
            mapped_file_size_commit_log=1 << 20,
            timer_wheel_enable=True,
            **more,
        )
        broker = Broker(settings, now_ms=lambda: NOW_MS)
        await broker.start()
        batched = 0
        if is_compiled:
            await broker.engine.load()
            put_table = broker.store.put_table

            def counting(table: Any, *rest: Any, put_table: Any = put_table) -> bool:
                nonlocal batched
                is_put: bool = put_table(table, *rest)
                batched += table.count if is_put else 0
                return is_put

            broker.store.put_table = counting  # type: ignore[assignment]
        told = await store_all(broker, seed)
        counts = {
            name: (target.puts.messages, target.puts.bytes)
            for name, target in broker.topics.targets.items()
        }
        await broker.catch_up()
        metrics = counted(broker)
        await broker.stop()
        assert is_compiled is (batched > 0)
        assert not check(folder).findings
        found.append((told, counts, files(folder), metrics))
    slow, fast = found
    assert fast[0] == slow[0]
    assert fast[1] == slow[1]
    assert fast[3] == slow[3]
    types = {labels[-2] for name, labels in slow[3] if name == "rocketmq_message_size"}
    assert types == {"normal", "fifo", "delay"}
    assert fast[2].keys() == slow[2].keys()
    assert [name for name in slow[2] if slow[2][name] != fast[2][name]] == []


async def test_switching_tracing_off_takes_effect_on_the_fast_path_at_once(
    fast: Broker,
) -> None:
    client = await known(fast)
    caller = Caller(fast)
    for is_on in ("false", "true"):
        await caller.ask(codes.UPDATE_BROKER_CONFIG, None, f"traceOn={is_on}".encode())
        client.writer.write(b"".join(map(send, range(8))))
        for answer in await client.answers(8):
            assert answer.fields()["TRACE_ON"] == is_on
        last = fast.store.max_offset("orders", 0) - 1
        [record] = records(await caller.pull("orders", last))
        assert record.properties["TRACE_ON"] == is_on
    client.close()
    await caller.peers.close()
