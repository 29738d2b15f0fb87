"""The producer: queue selection, encoding, and retries."""

import asyncio
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from aerobee.client import Message, Producer
from aerobee.client.base.receipts import SendReceipt, SendStatus
from aerobee.client.errors import (
    BatchError,
    BrokerError,
    ClientError,
    ClosedError,
    IllegalMessageError,
    NoAnswerError,
    NoRouteError,
    UnreachableError,
)
from aerobee.harness import java_side
from aerobee.protocol import codes
from aerobee.protocol.aio import peers
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.batch import split_batch
from aerobee.protocol.message.compression import KINDS, decompress
from aerobee.protocol.message.record import COMPRESSED, COMPRESSION_ZLIB
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeBroker, FakeCluster, route_of, until

RETRIED = (17, 14, 1, 2, 16, 204, 205)


def refuse(code: int, times: int, cluster: FakeCluster) -> None:
    """The brokers refuse the first `times` sends with this code, then accept sends."""
    left = [times]

    for broker in cluster.brokers:

        def answer(
            command: Command, connection: Connection, take: object = broker.take
        ) -> Response:
            left[0] -= 1
            assert callable(take)
            taken: Response = take(command, connection)
            return Response(code, remark="not now") if left[0] >= 0 else taken

        broker.answers[codes.SEND_MESSAGE_V2] = answer


def tries(cluster: FakeCluster) -> list[str]:
    """The broker name of each received send, grouped by broker."""
    return [broker.name for broker in cluster.brokers for _ in broker.sent]


async def test_a_message_is_sent_as_by_javas_producer(fake: FakeCluster) -> None:
    async with Producer(fake.address, group="shop") as producer:
        message = Message("orders", b"hello", tags="paid", keys=["o-1"], properties={"a": "b"})
        receipt = await producer.send(message)
    (command,) = fake.broker.requests[codes.SEND_MESSAGE_V2]
    header = command.header(SendMessage)
    assert command.body == b"hello"
    assert (header.producer_group, header.topic) == ("shop", "orders")
    assert (header.default_topic, header.default_topic_queues) == ("TBW102", 4)
    assert (header.sys_flag, header.reconsume_times, header.batch) == (0, 0, False)
    assert header.broker_name == "broker-a"
    assert props.decode(header.properties or "") == {
        "a": "b",
        "KEYS": "o-1",
        "TAGS": "paid",
        "UNIQ_KEY": receipt.msg_id,
    }
    assert receipt.status is SendStatus.OK
    assert receipt.offset_msg_id == "ID1"
    assert receipt.queue.queue_id == header.queue_id
    assert receipt.queue_offset == 0


async def test_the_fast_path_and_the_slow_path_send_the_same_request(
    fake: FakeCluster,
) -> None:
    message = Message(
        "orders", b"x" * 5_000, tags="a\N{SNOWMAN}", keys='"o"-1', properties={"a": "\\"}, flag=7
    )
    async with Producer(fake.address, group="shop") as producer:
        for _ in range(2):  # the first opens the connection
            await producer.send(message)
    long_way, quick = fake.broker.requests[codes.SEND_MESSAGE_V2]
    fields = [each.fields() for each in (long_way, quick)]
    properties = [props.decode(each.pop("i")) for each in fields]
    for each, pairs in zip(fields, properties, strict=True):
        # Queue, born time and message id differ.
        del each["e"], each["g"], pairs["UNIQ_KEY"]
    assert fields[0] == fields[1]
    assert properties[0] == properties[1]
    assert long_way.body == quick.body
    assert len(quick.body or b"") < 5_000


async def test_messages_are_distributed_round_robin_over_the_queues(fake: FakeCluster) -> None:
    async with Producer(fake.address) as producer:
        for _ in range(8):
            await producer.send(Message("orders", b"x"))
    ids = [header.queue_id for header in fake.broker.sent]
    assert ids[:4] == ids[4:]
    assert sorted(ids[:4]) == [0, 1, 2, 3]


async def test_a_long_body_is_compressed(fake: FakeCluster) -> None:
    long = b"abc" * 4096
    async with Producer(fake.address, compress_bytes_min=4096) as producer:
        await producer.send(Message("orders", long))
        await producer.send(Message("orders", long[:4095]))
    first, second = fake.broker.requests[codes.SEND_MESSAGE_V2]
    assert first.header(SendMessage).sys_flag == COMPRESSED | COMPRESSION_ZLIB
    assert zlib.decompress(first.body or b"") == long
    assert second.header(SendMessage).sys_flag == 0
    assert second.body == long[:4095]


async def test_a_body_that_compression_would_not_shorten_is_sent_uncompressed(
    fake: FakeCluster,
) -> None:
    body = bytes(range(256))
    async with Producer(fake.address, compress_bytes_min=1) as producer:
        await producer.send(Message("orders", body))
    (command,) = fake.broker.requests[codes.SEND_MESSAGE_V2]
    assert command.body == body
    assert command.header(SendMessage).sys_flag == 0


@pytest.mark.parametrize("code", RETRIED)
async def test_after_a_retriable_refusal_another_broker_is_tried(
    two: FakeCluster, code: int
) -> None:
    refuse(code, 1, two)
    async with Producer(two.address) as producer:
        await producer.send(Message("orders", b"x"))
    assert sorted(tries(two)) == ["broker-a", "broker-b"]


@pytest.mark.parametrize("code", [13, 29, 22, 604])
async def test_any_other_refusal_is_final(two: FakeCluster, code: int) -> None:
    refuse(code, 1, two)
    async with Producer(two.address) as producer:
        with pytest.raises(BrokerError, match="not now") as raised:
            await producer.send(Message("orders", b"x"))
    assert raised.value.code == code
    assert not raised.value.retriable
    assert len(tries(two)) == 1


async def test_after_three_tries_the_last_refusal_is_raised(two: FakeCluster) -> None:
    refuse(codes.SYSTEM_BUSY, 3, two)
    async with Producer(two.address) as producer:
        with pytest.raises(BrokerError, match="SYSTEM_BUSY") as raised:
            await producer.send(Message("orders", b"x"))
    assert raised.value.retriable
    assert "3 tries" in raised.value.__notes__[0]
    assert len(tries(two)) == 3


async def test_a_message_keeps_its_id_in_retries(two: FakeCluster) -> None:
    refuse(codes.SYSTEM_BUSY, 1, two)
    async with Producer(two.address) as producer:
        receipt = await producer.send(Message("orders", b"x"))
    sent = [header for broker in two.brokers for header in broker.sent]
    ids = {props.decode(header.properties or "")["UNIQ_KEY"] for header in sent}
    assert len(sent) == 2
    assert ids == {receipt.msg_id}


async def test_an_unreachable_broker_is_skipped(two: FakeCluster) -> None:
    await two.brokers[0].stop()
    async with Producer(two.address) as producer:
        receipts = [await producer.send(Message("orders", b"x")) for _ in range(8)]
    assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


async def test_a_send_to_a_given_queue_is_tried_once(two: FakeCluster) -> None:
    refuse(codes.SYSTEM_BUSY, 1, two)
    async with Producer(two.address) as producer:
        queue = (await producer.queues("orders"))[0]
        with pytest.raises(BrokerError):
            await producer.send(Message("orders", b"x"), queue=queue)
        assert (await producer.send(Message("orders", b"x"), queue=queue)).queue == queue


async def test_a_selector_and_a_key_choose_the_queue(fake: FakeCluster) -> None:
    async with Producer(fake.address) as producer:
        chosen = await producer.send(
            Message("orders", b"x"), selector=lambda queues, _, arg: queues[arg], selector_arg=3
        )
        same = [await producer.send(Message("orders", b"x"), sharding_key="k7") for _ in range(3)]
    assert chosen.queue.queue_id == 3
    assert len({receipt.queue for receipt in same}) == 1
    found = props.decode(fake.broker.sent[-1].properties or "")
    assert found[props.SHARDING_KEY] == "k7"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_a_message_stored_without_sync_or_slaves_has_that_status(
    fake: FakeCluster, code: int, status: SendStatus
) -> None:
    taken = fake.broker.take

    def answer(command: Command, connection: Connection) -> Response:
        return Response(code, taken(command, connection).fields)

    fake.broker.answers[codes.SEND_MESSAGE_V2] = answer
    async with Producer(fake.address) as producer:
        assert (await producer.send(Message("orders", b"x"))).status is status
    assert len(fake.broker.sent) == 1


async def test_a_timeout_error_gives_the_time(fake: FakeCluster) -> None:
    fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: None
    clock = Clock()
    async with Producer(fake.address) as producer:
        sending = asyncio.create_task(producer.send(Message("orders", b"x"), timeout=9))
        await until(lambda: fake.broker.sent)
        await clock.advance(10)
        with pytest.raises(NoAnswerError, match=r"within [89](\.\d+)? s"):
            await sending
    assert len(fake.broker.sent) == 1


async def test_a_lost_connection_fails_the_send_on_it(fake: FakeCluster) -> None:
    def cut(command: Command, connection: Connection) -> None:
        connection.abort()

    fake.broker.answers[codes.SEND_MESSAGE_V2] = cut
    async with Producer(fake.address, tries=1) as producer:
        with pytest.raises(UnreachableError, match="closed"):
            await producer.send(Message("orders", b"x"))


async def test_an_unknown_topic_uses_the_route_of_tbw102(fake: FakeCluster) -> None:
    fake.topics["TBW102"] = 8
    async with Producer(fake.address) as producer:
        receipt = await producer.send(Message("new", b"x"))
        assert receipt.queue.topic == "new"
        assert len(await producer.queues("new")) == 4


async def test_without_tbw102_an_unknown_topic_is_an_error_with_a_remedy(fake: FakeCluster) -> None:
    async with Producer(fake.address) as producer:
        with pytest.raises(NoRouteError, match="topic new; create it"):
            await producer.send(Message("new", b"x"))


async def test_a_topic_without_writable_queues_is_an_error(fake: FakeCluster) -> None:
    fake.order_conf = ";"
    async with Producer(fake.address) as producer:
        with pytest.raises(NoRouteError, match="no queue that can be written"):
            await producer.send(Message("orders", b"x"))


async def test_an_illegal_message_is_not_sent(fake: FakeCluster) -> None:
    async with Producer(fake.address, message_bytes_max=10) as producer:
        with pytest.raises(IllegalMessageError, match="limit is 10"):
            await producer.send(Message("orders", b"x" * 11))
    assert not fake.broker.sent


async def test_oneway_messages_arrive_without_a_response(fake: FakeCluster) -> None:
    async with Producer(fake.address) as producer:
        await producer.send_oneway(Message("orders", b"x"))
        await producer.send(Message("orders", b"y"))  # the response follows the first message
    first = fake.broker.requests[codes.SEND_MESSAGE_V2][0]
    assert first.is_oneway
    assert first.body == b"x"


async def test_a_batch_is_few_requests_with_an_id_for_each_message(fake: FakeCluster) -> None:
    messages = [Message("orders", b"%d" % number, tags="t") for number in range(100)]
    async with Producer(fake.address, batch_bytes_max=2000) as producer:
        receipt = await producer.send_batch(messages)
    commands = fake.broker.requests[codes.SEND_BATCH_MESSAGE]
    assert 1 < len(commands) == len(receipt.receipts) < 10
    assert all(command.header(SendMessage).batch for command in commands)
    entries = [entry for command in commands for entry in split_batch(command.body or b"")]
    ids = [props.decode(entry.raw_properties)["UNIQ_KEY"] for entry in entries]
    assert sorted(ids) == sorted(receipt.msg_ids)
    assert len(set(ids)) == 100
    assert sorted(entry.body for entry in entries) == sorted(each.body for each in messages)


async def test_parts_of_a_batch_for_one_queue_keep_their_order(fake: FakeCluster) -> None:
    messages = [Message("orders", b"%03d" % number) for number in range(100)]
    async with Producer(fake.address, batch_bytes_max=300) as producer:
        queue = (await producer.queues("orders"))[2]
        await producer.send_batch(messages, queue=queue)
    commands = fake.broker.requests[codes.SEND_BATCH_MESSAGE]
    assert {command.header(SendMessage).queue_id for command in commands} == {2}
    bodies = [entry.body for each in commands for entry in split_batch(each.body or b"")]
    assert bodies == [message.body for message in messages]


async def test_the_error_of_a_batch_sent_in_part_has_the_unsent_messages(fake: FakeCluster) -> None:
    take = fake.broker.take

    def answer(command: Command, connection: Connection) -> Response:
        taken = take(command, connection)
        return (
            taken if fake.broker.stored <= 2 else Response(codes.MESSAGE_ILLEGAL, remark="enough")
        )

    fake.broker.answers[codes.SEND_BATCH_MESSAGE] = answer
    messages = [Message("orders", b"%03d" % number) for number in range(40)]
    async with Producer(fake.address, batch_bytes_max=700) as producer:
        queue = (await producer.queues("orders"))[0]
        with pytest.raises(BatchError, match="enough") as raised:
            await producer.send_batch(messages, queue=queue)
    sent = [
        entry.body
        for command in fake.broker.requests[codes.SEND_BATCH_MESSAGE][:2]
        for entry in split_batch(command.body or b"")
    ]
    unsent = [message.body for message in raised.value.unsent]
    assert len(raised.value.receipts) == 2
    assert sent + unsent == [message.body for message in messages]


async def test_many_concurrent_sends_use_one_connection_and_its_window(
    fake: FakeCluster,
) -> None:
    async with Producer(fake.address, under_way_max=10) as producer:
        sends = (producer.send(Message("orders", b"x")) for _ in range(500))
        receipts = await asyncio.gather(*sends)
    assert len({receipt.msg_id for receipt in receipts}) == 500
    assert len(fake.broker.connections) == 1


async def test_a_burst_larger_than_all_buffers_is_sent(fake: FakeCluster) -> None:
    # Both ends have more to write than the peer has read; neither may wait for the other.
    body = bytes(range(256)) * 64
    answer = fake.broker.take

    def long_response(command: Command, connection: Connection) -> Response:
        return Response(0, {**(answer(command, connection).fields or {}), "pad": "x" * 16_384})

    fake.broker.answers[codes.SEND_MESSAGE_V2] = long_response
    async with Producer(fake.address, compress_bytes_min=1 << 20, under_way_max=2000) as producer:
        sends = (producer.send(Message("orders", body), timeout=60) for _ in range(1500))
        receipts = await asyncio.wait_for(asyncio.gather(*sends), LONG)
    assert len(receipts) == 1500


async def test_a_send_of_a_producer_not_started_or_closed_is_an_error(fake: FakeCluster) -> None:
    producer = Producer(fake.address)
    with pytest.raises(ClosedError, match="not started"):
        await producer.send(Message("orders", b"x"))
    await producer.start()
    await producer.close()
    with pytest.raises(ClosedError, match="closed"):
        await producer.send(Message("orders", b"x"))
    with pytest.raises(ClosedError, match="closed"):
        await producer.start()


async def test_the_group_is_registered_and_unregistered_at_the_broker(fake: FakeCluster) -> None:
    async with Producer(fake.address, group="shop") as producer:
        await producer.send(Message("orders", b"x"))
    assert fake.broker.order[0] == codes.HEART_BEAT
    assert fake.broker.order[-1] == codes.UNREGISTER_CLIENT
    assert b'"shop"' in (fake.broker.requests[codes.HEART_BEAT][0].body or b"")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_is_compressed_with_the_chosen_algorithm(kind: str, fake: FakeCluster) -> None:
    long = b"the same again and again " * 400
    async with Producer(fake.address, compression=kind) as producer:
        await producer.send(Message("orders", long))
    (command,) = fake.broker.requests[codes.SEND_MESSAGE_V2]
    sys_flag = command.header(SendMessage).sys_flag
    assert sys_flag == COMPRESSED | KINDS[kind]
    assert len(command.body or b"") < 1_000
    assert decompress(command.body or b"", sys_flag) == long


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"compression": "rar"}, "give one of zlib, lz4, zstd"),
        ({"compression": "zstd", "compression_level": 99}, "levels 1 to 22, not 99"),
    ],
)
def test_an_unknown_compression_or_level_is_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ClientError, match=why):
        Producer("127.0.0.1:1", **options)  # type: ignore[arg-type]


async def test_with_latency_faults_a_failed_broker_is_avoided(two: FakeCluster) -> None:
    refuse(codes.SYSTEM_BUSY, 1, two)
    async with Producer(two.address, latency_faults=True) as producer:
        for _ in range(12):
            await producer.send(Message("orders", b"x"))
    counts = sorted(tries(two).count(broker.name) for broker in two.brokers)
    assert counts == [1, 12]


async def test_without_latency_faults_a_failed_broker_stays_in_the_rotation(
    two: FakeCluster,
) -> None:
    refuse(codes.SYSTEM_BUSY, 1, two)
    async with Producer(two.address) as producer:
        for _ in range(12):
            await producer.send(Message("orders", b"x"))
    assert min(tries(two).count(broker.name) for broker in two.brokers) > 3


@pytest.mark.parametrize("retry", [True, False])
async def test_retry_not_stored_retries_a_flush_timeout_at_other_brokers(
    retry: bool, two: FakeCluster
) -> None:
    for broker in two.brokers:

        def late(command: Command, connection: Connection, take: object = broker.take) -> Response:
            assert callable(take)
            return Response(codes.FLUSH_DISK_TIMEOUT, take(command, connection).fields)

        broker.answers[codes.SEND_MESSAGE_V2] = late
    async with Producer(two.address, retry_not_stored=retry) as producer:
        receipt = await producer.send(Message("orders", b"x"))
    assert receipt.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(tries(two)) == (3 if retry else 1)


async def test_an_invalid_recall_handle_is_not_sent(fake: FakeCluster) -> None:
    async with Producer(fake.address) as producer:
        with pytest.raises(ClientError, match="recall_handle of a receipt"):
            await producer.recall("orders", "no handle")
    assert not fake.broker.requests[codes.RECALL_MESSAGE]


async def test_a_namespace_prefixes_topics_and_group(fake: FakeCluster) -> None:
    fake.topics["ns%orders"] = 4
    async with Producer(fake.address, group="shop", namespace="ns") as producer:
        await producer.send(Message("orders", b"x"))
        await producer.send(Message("orders", b"x"), sharding_key="k")
        await producer.send_batch([Message("orders", b"x"), Message("orders", b"y")])
        queues = await producer.queues("orders")
        await producer.send(Message("orders", b"x"), queue=queues[0])
    assert {header.topic for header in fake.broker.sent} == {"ns%orders"}
    assert {header.producer_group for header in fake.broker.sent} == {"ns%shop"}
    assert len(fake.broker.sent) == 4


async def test_the_vip_channel_uses_the_port_two_below(
    aerobee_clusters: Callable[..., LocalCluster],
) -> None:
    port = java_side.free_broker_port()
    cluster = aerobee_clusters(listen_port=port)
    async with Producer(cluster.name_server, vip_channel=True) as producer:
        await producer.send(Message("orders", b"x"))
        server = cluster.brokers[0].server
        ends = cluster.call(lambda: {each.local_address for each in server.connections})
    assert f"127.0.0.1:{port - 2}" in ends


@pytest.mark.parametrize("kind", ["in turn", "to a queue", "a batch", "begun"])
async def test_a_send_waits_for_a_broker_that_restarts(
    kind: str, fake: FakeCluster, clock: Clock
) -> None:
    async with Producer(fake.address) as producer:
        await producer.send(Message("orders", b"before"))
        queue = (await producer.queues("orders"))[2]
        await fake.broker.stop()
        message = Message("orders", b"after")
        sending: asyncio.Future[object] = asyncio.ensure_future(
            producer.send_batch([message], timeout=8)
            if kind == "a batch"
            else producer.send_soon(message, timeout=8)
            if kind == "begun"
            else producer.send(message, queue=queue if kind == "to a queue" else None, timeout=8)
        )
        await clock.advance(6)
        assert not sending.done()
        await fake.broker.start()
        await until_moved(clock, sending.done)
        assert "OK" in str(await sending)
    assert fake.broker.stored == 2


async def until_moved(clock: Clock, holds: Callable[[], bool]) -> None:
    """Move the clock in steps of 0.1 s until this holds; at most two seconds."""
    for _ in range(20):
        if not holds():
            await clock.advance(0.1, 0.1)
    assert holds()


@pytest.mark.parametrize("number", [None, 2])
async def test_a_send_waits_for_an_unreachable_broker_until_its_timeout(
    number: int | None, fake: FakeCluster, clock: Clock
) -> None:
    async with Producer(fake.address, tries=1) as producer:
        queues = await producer.queues("orders")
        queue = None if number is None else queues[number]
        await fake.broker.stop()
        send = producer.send(Message("orders", b"lost"), queue=queue, timeout=4)
        sending = asyncio.ensure_future(send)
        await clock.advance(2.5)
        assert not sending.done()
        await clock.advance(2)
        with pytest.raises(UnreachableError, match="can't connect") as caught:
            await sending
    assert caught.value.__notes__ == ["0 tries within 4 s: no broker could be reached"]


async def test_a_send_waits_for_a_broker_that_is_not_in_service(
    fake: FakeCluster, clock: Clock
) -> None:
    refuse(codes.SERVICE_NOT_AVAILABLE, 5, fake)
    async with Producer(fake.address) as producer:
        sending = asyncio.ensure_future(producer.send(Message("orders", b"x"), timeout=8))
        await clock.advance(1)
        assert not sending.done()
        assert len(tries(fake)) < 5  # with a pause between two tries
        await clock.advance(4, 0.1)
        assert (await sending).status is SendStatus.OK
    ids = {props.decode(each.properties or "")["UNIQ_KEY"] for each in fake.broker.sent}
    assert len(fake.broker.sent) == 6
    assert len(ids) == 1


async def test_a_message_that_may_be_stored_is_sent_at_most_tries_times(
    fake: FakeCluster, clock: Clock
) -> None:
    def cut(command: Command, connection: Connection) -> None:
        connection.abort()

    fake.broker.answers[codes.SEND_MESSAGE_V2] = cut
    async with Producer(fake.address, tries=2) as producer:
        sending = asyncio.ensure_future(producer.send(Message("orders", b"x"), timeout=8))
        await until_moved(clock, sending.done)
        with pytest.raises(UnreachableError, match="closed") as caught:
            await sending
    assert caught.value.__notes__ == ["2 tries within 8 s, at broker-a, broker-a"]
    assert len(fake.broker.sent) == 2


async def test_a_broker_restarted_at_another_address_is_found(
    fake: FakeCluster, clock: Clock
) -> None:
    async with Producer(fake.address) as producer:
        await producer.send(Message("orders", b"before"))
        await fake.broker.stop()
        sending = asyncio.ensure_future(producer.send(Message("orders", b"after"), timeout=8))
        await clock.advance(2)
        assert not sending.done()
        fake.broker.address = ""
        await fake.broker.start()
        await until_moved(clock, sending.done)
        assert (await sending).status is SendStatus.OK


async def test_a_send_follows_the_master_when_its_broker_has_become_a_slave(
    fake: FakeCluster, clock: Clock
) -> None:
    async with Producer(fake.address) as producer:
        await producer.send(Message("orders", b"before"))
        old, new = fake.broker, FakeBroker(fake.broker.name)
        refused = "[REJECTREQUEST]this broker is a slave, which takes no messages"
        old.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(codes.SYSTEM_BUSY, remark=refused)
        await new.start()
        fake.brokers = [new]
        sending = asyncio.ensure_future(producer.send(Message("orders", b"after"), timeout=8))
        await until_moved(clock, sending.done)
        assert (await sending).status is SendStatus.OK
        assert len(old.sent) == 2  # one before, one that was refused
        await old.stop()


async def test_a_send_waits_while_the_brokers_of_its_topic_have_no_master(
    fake: FakeCluster, clock: Clock
) -> None:
    def without_master(command: Command, _: Connection) -> Response:
        route = route_of(4, fake.brokers)
        route.broker_datas[0].broker_addrs = {1: fake.broker.address}
        return Response(body=route.encode())

    async with Producer(fake.address) as producer:
        with_master = fake.answers[codes.GET_ROUTEINFO_BY_TOPIC]
        fake.answers[codes.GET_ROUTEINFO_BY_TOPIC] = without_master
        with pytest.raises(NoRouteError, match="no queue that can be written"):
            await producer.send(Message("orders", b"early"), timeout=0.001)
        sending = asyncio.ensure_future(producer.send(Message("orders", b"x"), timeout=8))
        await clock.advance(2)
        assert not sending.done()
        fake.answers[codes.GET_ROUTEINFO_BY_TOPIC] = with_master
        asked = len(fake.requests[codes.GET_ROUTEINFO_BY_TOPIC])
        assert asked <= 7  # each half second
        await until_moved(clock, sending.done)
        assert (await sending).status is SendStatus.OK


async def test_a_send_fails_at_once_if_the_reconnect_pause_exceeds_its_timeout(
    fake: FakeCluster,
) -> None:
    async with Producer(fake.address) as producer:
        await producer.send(Message("orders", b"before"))
        await fake.broker.stop()
        for _ in range(2):
            with pytest.raises(UnreachableError):
                await producer.send(Message("orders", b"lost"), timeout=0.001)
        with pytest.raises(UnreachableError, match="next try in") as caught:
            await producer.send(Message("orders", b"lost"), timeout=0.001)
    assert caught.value.__notes__ == ["0 tries within 0.001 s: no broker could be reached"]


async def test_a_broker_in_its_reconnect_pause_costs_no_try(
    two: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PAUSE_SECONDS", 1_000.0)
    monkeypatch.setattr(peers, "PAUSE_SECONDS_MAX", 1_000.0)
    async with Producer(two.address, tries=1) as producer:

        async def to_each() -> list[SendReceipt]:
            return [await producer.send(Message("orders", b"x")) for _ in range(8)]

        await to_each()  # connects both brokers
        await two.brokers[0].stop()
        with suppress(UnreachableError):  # unless the client has noticed the disconnect by then
            await to_each()
        receipts = await to_each()
    assert {each.queue.broker_name for each in receipts} == {two.brokers[1].name}


GONE = "request queueId[3] is illegal, TopicConfig [topicName=orders] Producer: 127.0.0.1:1"


def shrink(cluster: FakeCluster, code: int, *, queues: int, route: int | None = None) -> list[int]:
    """From now on brokers refuse the queues from this number on, and the route says so, or has
    `route` queues still. The ids of the queues that they refused."""
    refused: list[int] = []
    cluster.topics["orders"] = queues if route is None else route

    for broker in cluster.brokers:

        def answer(
            command: Command,
            connection: Connection,
            take: Callable[[Command, Connection], Response] = broker.take,
        ) -> Response:
            queue_id = command.header(SendMessage).queue_id
            if queue_id < queues:
                return take(command, connection)
            refused.append(queue_id)
            return Response(code, remark=GONE)

        broker.answers[codes.SEND_MESSAGE_V2] = answer
    return refused


@pytest.mark.parametrize("code", [codes.INVALID_PARAMETER, codes.SYSTEM_ERROR])
async def test_a_queue_that_is_gone_costs_no_try_and_the_route_is_fetched_at_once(
    fake: FakeCluster, code: int
) -> None:
    async with Producer(fake.address, tries=1) as producer:
        await producer.send(Message("orders", b"x"))  # now it has the route with 4 queues
        refused = shrink(fake, code, queues=2)
        receipts = await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(8)))
        assert {receipt.queue.queue_id for receipt in receipts} == {0, 1}
        assert len(await producer.queues("orders")) == 2
        count = len(refused)
        assert set(refused) == {2, 3}
        await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(8)))
        assert len(refused) == count


async def test_each_queue_that_is_gone_is_tried_once_while_the_route_is_an_old_one(
    fake: FakeCluster,
) -> None:
    async with Producer(fake.address, tries=1) as producer:
        refused = shrink(fake, codes.INVALID_PARAMETER, queues=1, route=4)
        receipt = await producer.send(Message("orders", b"x"))
        assert receipt.queue.queue_id == 0
        assert len(refused) == len(set(refused))
        refused = shrink(fake, codes.INVALID_PARAMETER, queues=0, route=4)
        with pytest.raises(BrokerError, match=r"queueId\[3\] is illegal"):
            await producer.send(Message("orders", b"x"))
        assert sorted(refused) == [0, 1, 2, 3]


async def test_a_key_chooses_again_when_its_queue_is_gone_and_a_given_queue_fails(
    fake: FakeCluster,
) -> None:
    async with Producer(fake.address) as producer:
        queues = await producer.queues("orders")
        refused = shrink(fake, codes.INVALID_PARAMETER, queues=2)
        with pytest.raises(BrokerError, match=r"queueId\[3\] is illegal"):
            await producer.send(Message("orders", b"x"), queue=queues[3])
        assert await producer.queues("orders") == queues[:2]
        assert refused == [3]

        fake.topics["orders"] = 4
        async with Producer(fake.address) as other:
            assert len(await other.queues("orders")) == 4
            fake.topics["orders"] = 2
            receipt = await other.send(
                Message("orders", b"x"), selector=lambda found, *_: found[-1]
            )
            assert receipt.queue == queues[1]
            assert refused == [3, 3]
            refused_keys = shrink(fake, codes.INVALID_PARAMETER, queues=0, route=2)
            with pytest.raises(BrokerError, match="is illegal"):
                await other.send(Message("orders", b"x"), sharding_key="k")
            assert len(refused_keys) == 2  # no third choice
