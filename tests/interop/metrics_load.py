"""Requests to a broker of every kind that its metrics distinguish."""

from __future__ import annotations

import json
import time

from aerobee.harness.clusters import BROKER_NAME
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

from .programs import SECONDS


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
