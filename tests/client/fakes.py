"""A fake name server and fake brokers on free ports, which respond as the test says.

They use the real connections, so a test sees what went over the wire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from aerobee.client.base.identity import now_ms
from aerobee.harness.java_side import free_ports
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.server import Server
from aerobee.protocol.bodies.clients import GetConsumerListByGroupResponseBody
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from aerobee.protocol.command import OK, Command, Response
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.headers.topics import TopicName
from aerobee.protocol.message.record import Record, encode_record

from ..waiting import until as until

HOST = b"\x7f\0\0\x01\0\0\x2a\x9f"

Answer = Callable[[Command, Connection], Response | None]


class FakeServer:
    """Responds to each request code by a function; `requests` has the received ones, by code."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.requests: dict[int, list[Command]] = defaultdict(list)
        self.order: list[int] = []  # the codes in the order of arrival
        self.address = ""
        self.connections: list[Connection] = []
        self._server: Server | None = None

    async def start(self) -> None:
        """Listen on a free port, or again on the port it had before, which no neighbour gets."""
        self._server = Server()
        rows = {code: Row(code, None, self._on) for code in codes.REQUEST_NAMES}
        port = int(self.address.partition(":")[2] or free_ports(1)[0])
        self.address = f"127.0.0.1:{await self._server.listen('127.0.0.1', port, rows)}"

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            await self._server.stop()

    def _on(self, _: None, command: Command, connection: Connection) -> Response | None:
        if connection not in self.connections:
            self.connections.append(connection)
        self.requests[command.code].append(command)
        self.order.append(command.code)
        answer = self.answers.get(command.code)
        if answer is None:
            return Response(codes.REQUEST_CODE_NOT_SUPPORTED, remark="not in this test")
        return answer(command, connection)


class FakeBroker(FakeServer):
    """Takes every message and knows every member, unless a test says otherwise."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.members: set[str] = set()
        self.stored = 0
        self.answers = {
            codes.HEART_BEAT: self._heartbeat,
            codes.UNREGISTER_CLIENT: lambda *_: OK,
            codes.GET_CONSUMER_LIST_BY_GROUP: self._member_list,
            codes.SEND_MESSAGE_V2: self.take,
            codes.SEND_BATCH_MESSAGE: self.take,
            codes.UPDATE_CONSUMER_OFFSET: lambda *_: OK,
            codes.QUERY_CONSUMER_OFFSET: lambda *_: Response(codes.QUERY_NOT_FOUND, remark="new"),
            codes.GET_MAX_OFFSET: lambda *_: Response(fields={"offset": "0"}),
            codes.PULL_MESSAGE: lambda *_: None,  # parked for ever
        }

    def take(self, command: Command, _: Connection) -> Response:
        """The response of a broker that has stored the message."""
        header = command.header(SendMessage)
        self.stored += 1
        fields = {
            "msgId": f"ID{self.stored}",
            "queueId": str(header.queue_id),
            "queueOffset": str(self.stored - 1),
        }
        return Response(fields=fields)

    @property
    def sent(self) -> list[SendMessage]:
        """The headers of the received messages, oneway ones too."""
        commands = self.requests[codes.SEND_MESSAGE_V2] + self.requests[codes.SEND_BATCH_MESSAGE]
        return [command.header(SendMessage) for command in commands]

    def _heartbeat(self, command: Command, _: Connection) -> Response:
        beat = HeartbeatData.decode(command.body)
        if beat.consumer_data_set:
            self.members.add(beat.client_id)
        return OK

    def _member_list(self, *_: object) -> Response:
        return Response(body=GetConsumerListByGroupResponseBody(sorted(self.members)).encode())


class FakeCluster(FakeServer):
    """A name server and its brokers. `topics` maps a topic to its queues per broker."""

    def __init__(self, brokers: int = 1) -> None:
        super().__init__()
        self.brokers = [FakeBroker(f"broker-{chr(ord('a') + at)}") for at in range(brokers)]
        self.topics: dict[str, int] = {}
        self.order_conf: str | None = None
        self.shuffle: Callable[[list[FakeBroker]], None] | None = None  # of a route's brokers
        self.answers = {codes.GET_ROUTEINFO_BY_TOPIC: self._route}

    async def start(self) -> None:
        await super().start()
        for broker in self.brokers:
            await broker.start()

    async def stop(self) -> None:
        await super().stop()
        for broker in self.brokers:
            await broker.stop()

    @property
    def broker(self) -> FakeBroker:
        """The only broker."""
        assert len(self.brokers) == 1
        return self.brokers[0]

    def _route(self, command: Command, _: Connection) -> Response:
        topic = command.header(TopicName).topic
        if topic not in self.topics:
            return Response(codes.TOPIC_NOT_EXIST, remark=f"No topic route info: {topic}")
        brokers = list(self.brokers)
        if self.shuffle is not None:
            self.shuffle(brokers)
        return Response(body=route_of(self.topics[topic], brokers, self.order_conf).encode())


def route_of(
    queues: int, brokers: list[FakeBroker], order_conf: str | None = None
) -> TopicRouteData:
    """A route over these brokers, all masters."""
    return TopicRouteData(
        order_conf,
        [QueueData(broker.name, queues, queues, 6) for broker in brokers],
        [BrokerData("cluster", broker.name, {0: broker.address}) for broker in brokers],
    )


def record(
    offset: int,
    body: bytes = b"body",
    topic: str = "orders",
    raw_properties: bytes = b"",
    reconsume_times: int = 0,
    sys_flag: int = 0,
    queue_id: int = 0,
) -> bytes:
    """One stored message in the format of a pull's response."""
    return encode_record(
        Record(
            0,
            0,
            0,
            queue_id,
            0,
            offset,
            1000 + offset,
            sys_flag,
            1,
            HOST,
            2,
            HOST,
            reconsume_times,
            0,
            body,
            topic,
            raw_properties,
        )
    )


def pulled(
    records: list[bytes] | None = None,
    next_offset: int = 0,
    code: int = codes.SUCCESS,
    extra: Mapping[str, str] | None = None,
) -> Response:
    """The response to a pull."""
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": "0",
        "maxOffset": str(next_offset),
        **(extra or {}),
    }
    return Response(code, fields, body=b"".join(records or ()))


def popped_with_tags(offset: int, *tags: bytes) -> Response:
    """The response to a pop: a message for each tag, from this offset of queue 0 on."""
    offsets = range(offset, offset + len(tags))
    fields = {
        "popTime": str(now_ms()),
        "invisibleTime": "60000",
        "reviveQid": "3",
        "restNum": "0",
        "startOffsetInfo": f"0 0 {offset}",
        "msgOffsetInfo": f"0 0 {','.join(map(str, offsets))}",
    }
    records = [
        record(at, tag, raw_properties=b"TAGS\x01%b\x02" % tag)
        for at, tag in zip(offsets, tags, strict=True)
    ]
    return Response(fields=fields, body=b"".join(records))
