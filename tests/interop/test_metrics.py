"""The metrics of both brokers after the same requests: the same names with the same labels.

RocketMQ's metrics come from its exporter for Prometheus, ours from the broker's HTTP endpoint.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.headers.clients import UnregisterClient
from aerobee.protocol.headers.groups import GroupName
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.pop import AckMessage, PopMessage
from aerobee.protocol.headers.pull import PullMessage
from aerobee.protocol.headers.send import ConsumerSendMsgBack, SendMessage, SendMessageV1
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.headers.transactions import EndTransaction
from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.message_id import parse_offset_message_id
from aerobee.protocol.message.pop_handles import handle
from aerobee.protocol.message.record import decode_all
from aerobee.protocol.wire import Header
from aerobee.scripts.harness import java_side
from aerobee.scripts.harness.clusters import (
    BROKER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    JavaCluster,
)

from .programs import SECONDS, side_by_side

SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "enablePopBufferMerge": "false",  # RocketMQ's default, which writes each acknowledgement
}
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Metrics of the exporter itself.
INFO = {"target_info", "otel_scope_info"}
NUMBERS = ("rocketmq_messages_in_total", "rocketmq_message_size_count")

Labels = frozenset[tuple[str, str]]


class Scrape(NamedTuple):
    """Values by name and labels, and types by the name in their `# TYPE` line."""

    values: dict[tuple[str, Labels], float]
    types: dict[str, str]

    def type_of(self, name: str) -> str:
        """The type of a sample, whose name may have a suffix that Java's TYPE line leaves out."""
        fitting = [base for base in self.types if name.startswith(base)]
        return self.types[max(fitting, key=len)]


def scrape(url: str) -> Scrape:
    """The metrics that a broker serves under RocketMQ's names."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        text = answer.read().decode()
    values, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        elif not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            name, labels, value = found.groups()
            if name.startswith("rocketmq_"):
                values[name, frozenset(LABEL.findall(labels or ""))] = float(value)
    return Scrape(values, {name: kind for name, kind in types.items() if name not in INFO})


class Both(NamedTuple):
    """The two brokers and where their metrics are."""

    ours: AerobeeCluster
    real: JavaCluster
    urls: tuple[str, str]


@pytest.fixture(scope="module")
def both(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("metrics")
    endpoint, exporter = java_side.free_ports(2)
    ours = AerobeeCluster(folder / "ours", {**SETTINGS, "httpPort": endpoint})
    export: dict[str, str | int] = {
        "metricsExporterType": "PROM",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": exporter,
    }
    # Two processes: in one process the broker would count the name server's requests as its own.
    real = JavaCluster(folder / "real", SETTINGS | export, apart=True, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real):
        urls = tuple(f"http://127.0.0.1:{port}/metrics" for port in (endpoint, exporter))
        yield Both(ours, real, urls)  # type: ignore[arg-type]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Load:
    """Requests to one broker, of every kind that its metrics distinguish."""

    def __init__(self, peers: Peers, address: str) -> None:
        self._peers = peers
        self._address = address

    async def ask(
        self, code: int, header: Header | dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        return await self._peers.request(self._address, code, header, body, SECONDS)

    async def send(self, topic: str, body: bytes = b"m", **pairs: str) -> Command:
        text = properties.join({"UNIQ_KEY": "7F00000100001", **pairs})
        header = SendMessage("pg", topic, "TBW102", 4, 0, 0, now_ms(), 0, text)
        answer = await self.ask(codes.SEND_MESSAGE_V2, header, body)
        assert answer.code == codes.SUCCESS, answer.remark
        return answer

    async def run(self) -> None:
        """Sends all requests."""
        await self._tables()
        await self._sends()
        await self._transactions()
        await self._pulls()
        await self._retries()
        await self._pops()

    async def _tables(self) -> None:
        for topic in ("T", "Popped"):
            header = UpdateTopic(topic, 4, 4, 6, sys_flag=0)
            await self.ask(codes.UPDATE_AND_CREATE_TOPIC, header)
        wrong = UpdateTopic("a b", 4, 4, 6, sys_flag=0)
        await self.ask(codes.UPDATE_AND_CREATE_TOPIC, wrong)
        for group in ("cg", "popper"):
            config = json.dumps({"groupName": group}).encode()
            await self.ask(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        await self.ask(codes.GET_SUBSCRIPTIONGROUP_CONFIG, GroupName("cg"))
        for group, kind, topic in (
            ("cg", "CONSUME_PASSIVELY", "T"),
            ("popper", "CONSUME_POP", "Popped"),
        ):
            await self._beat(group, kind, topic)
        await self.ask(9_999)

    async def _beat(self, group: str, kind: str, topic: str) -> None:
        wanted = {"topic": topic, "subString": "*", "expressionType": "TAG"}
        consumer = {
            "groupName": group, "consumeType": kind, "messageModel": "CLUSTERING",
            "subscriptionDataSet": [wanted], "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        }  # fmt: skip
        producers = [{"groupName": "pg"}]
        body = {
            "clientID": f"c-{group}",
            "producerDataSet": producers,
            "consumerDataSet": [consumer],
        }
        await self.ask(codes.HEART_BEAT, None, json.dumps(body).encode())

    async def _sends(self) -> None:
        for size in (10, 10, 3_000, 600_000):
            await self.send("T", b"x" * size)
        await self.send("T", __SHARDINGKEY="k")
        await self.send("T", DELAY="1")
        await self.send("T", TIMER_DELAY_MS="1500")
        await self.send("T", TIMER_DELAY_SEC="7200")
        await self.send("Popped", b"first")
        await self.send("Popped", b"second")
        text = properties.join({"UNIQ_KEY": "7F00000100002"})
        batch = encode_batch([Entry(0, b"1", b""), Entry(0, b"2", b"")])
        header = SendMessage(
            "pg", "T", "TBW102", 4, 1, 0, now_ms(), 0, text, batch=True
        )  # fmt: skip
        assert (await self.ask(codes.SEND_BATCH_MESSAGE, header, batch)).code == 0
        old = SendMessageV1("pg", "T", "TBW102", 4, 2, 0, now_ms(), 0, text)
        assert (await self.ask(codes.SEND_MESSAGE, old, b"old")).code == 0
        alone = SendMessage("pg", "T", "TBW102", 4, 3, 0, now_ms(), 0, text)
        await self._peers.oneway(self._address, codes.SEND_MESSAGE_V2, alone, b"oneway")
        refused = SendMessage("pg", "T", "TBW102", 4, 99, 0, now_ms(), 0, text)
        assert (await self.ask(codes.SEND_MESSAGE_V2, refused, b"no such queue")).code != 0

    async def _transactions(self) -> None:
        for outcome in (8, 12):  # commit, roll back
            half = await self.send("T", TRAN_MSG="true", PGROUP="pg")
            fields = half.fields()
            _, place = parse_offset_message_id(fields["msgId"])
            end = EndTransaction("pg", int(fields["queueOffset"]), place, outcome)
            assert (await self.ask(codes.END_TRANSACTION, end)).code == codes.SUCCESS

    async def _pull(self, queue_id: int, offset: int, flags: int, wait_ms: int = 0) -> Command:
        header = PullMessage(
            "cg", "T", queue_id, offset, 32, flags, 0, wait_ms, 0, "*", expression_type="TAG"
        )
        return await self.ask(codes.PULL_MESSAGE, header)

    async def _pulls(self) -> None:
        found = await self._pull(0, 0, 4)
        assert found.code == codes.SUCCESS
        self.first = decode_all(found.body or b"")[0]
        assert (await self._pull(3, 1, 4 | 2, 200)).code == codes.PULL_NOT_FOUND
        commit = UpdateConsumerOffset("cg", "T", 0, 1)
        await self.ask(codes.UPDATE_CONSUMER_OFFSET, commit)

    async def _retries(self) -> None:
        for level in (1, -1):  # once more, and to the dead letters
            header = ConsumerSendMsgBack(
                offset=self.first.log_offset, group="cg", delay_level=level, origin_topic="T",
                origin_msg_id="m", max_reconsume_times=16,
            )  # fmt: skip
            answer = await self.ask(codes.CONSUMER_SEND_MSG_BACK, header)
            assert answer.code == codes.SUCCESS, answer.remark

    async def _pop(self, invisible_ms: int) -> Command:
        header = PopMessage("popper", "Popped", 0, 1, invisible_ms, 0, 0, now_ms(), "TAG", "*")
        return await self.ask(codes.POP_MESSAGE, header)

    async def _pops(self) -> None:
        answer = await self._pop(60_000)
        assert answer.code == codes.SUCCESS, answer.remark
        fields, record = answer.fields(), decode_all(answer.body or b"")[0]
        text = handle(
            0, int(fields["popTime"]), int(fields["invisibleTime"]), int(fields["reviveQid"]), "0",
            BROKER_NAME, record.queue_id, record.queue_offset,
        )  # fmt: skip
        ack = AckMessage("popper", "Popped", 0, text, record.queue_offset)
        assert (await self.ask(codes.ACK_MESSAGE, ack)).code == codes.SUCCESS
        # The second message is redelivered; then it is popped from the retry topic.
        assert (await self._pop(10_000)).code == codes.SUCCESS

    async def pop_again(self) -> bool:
        """Whether the unacknowledged message has been redelivered."""
        answer = await self._pop(60_000)
        return answer.code == codes.SUCCESS

    async def leave(self) -> None:
        await self.ask(codes.UNREGISTER_CLIENT, UnregisterClient("c-none", None, "none"))


@pytest.mark.finding("C7")
async def test_names_and_labels_are_those_of_the_real_broker(both: Both, peers: Peers) -> None:
    for cluster in (both.ours, both.real):
        load = Load(peers, cluster.broker)
        await load.run()
    for cluster in (both.ours, both.real):
        load = Load(peers, cluster.broker)
        async with asyncio.timeout(SECONDS):
            while not await load.pop_again():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.2)
        await load.leave()
    ours, real = await settled(both)
    assert only(ours, real) == []
    assert only(real, ours) == []
    names = {name for name, _ in real.values}
    assert {name: ours.type_of(name) for name in names} == {
        name: real.type_of(name) for name in names
    }
    same = {key for key in real.values if key[0] in NUMBERS}
    assert {key: ours.values[key] for key in same} == {key: real.values[key] for key in same}


def only(one: Scrape, other: Scrape) -> list[tuple[str, list[tuple[str, str]]]]:
    """Samples that only the first broker has."""
    return sorted((name, sorted(labels)) for name, labels in set(one.values) - set(other.values))


async def settled(both: Both) -> tuple[Scrape, Scrape]:
    """The metrics of both brokers, once their background work is done or 30 s have passed."""
    for _ in range(30):
        ours, real = both.urls
        found = await asyncio.to_thread(scrape, ours), await asyncio.to_thread(scrape, real)
        if set(found[0].values) == set(found[1].values):
            break
        await asyncio.sleep(1)
    return found
