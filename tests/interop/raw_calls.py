"""Raw calls to a proxy for clients of RocketMQ 5: the code of each answer, and what is in it."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from aerobee.client import Admin
from aerobee.proxy.messages import definitions
from aerobee.proxy.messages.status import Code

from ..proxy.support import FILTERS, TYPES, Client, message, new, resource
from ..proxy.telemetry.talking import consumer

TOPICS = {
    "RawNormal": "NORMAL",
    "RawFifo": "FIFO",
    "RawDelay": "DELAY",
    "RawTransaction": "TRANSACTION",
}
GROUP = "raw-readers"
DAY_SECONDS = 86_400
# What RocketMQ's proxy does not serve.
PULLS = ("UpdateOffset", "GetOffset", "QueryOffset")
UNARY = (
    *("QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "AckMessage"),
    *("ForwardMessageToDeadLetterQueue", "EndTransaction", "NotifyClientTermination"),
    *("ChangeInvisibleDuration", "RecallMessage"),
)
COMMIT = definitions.enum("TransactionResolution")["COMMIT"]

# A send that is refused, by its one fault.
REFUSED_SENDS: dict[str, dict[str, Any]] = {
    "an empty body": {"body": ""},
    "129 properties": {"user_properties": {str(number): "v" for number in range(129)}},
    "properties of 16 KiB": {"user_properties": {"a": "v" * (16 << 10)}},
    "a reserved property": {"user_properties": {"KEYS": "v"}},
    "a property of brokers": {"user_properties": {"INNER_MULTI_DISPATCH": "v"}},
    "a control character in a property": {"user_properties": {"a": "v\x01"}},
    "a blank tag": {"tag": " "},
    "a tag with |": {"tag": "a|b"},
    "a blank key": {"keys": ["a", "\t"]},
    "a blank id": {"message_id": " "},
    "a blank message group": {"message_group": " "},
    "a long message group": {"message_group": "g" * 64},
    "an illegal topic": {"topic": "a b"},
    "a system topic": {"topic": "TBW102"},
    "an unknown topic": {"topic": "RawUnknown"},
    "another type": {"topic": "RawFifo"},
    "a delivery in 1,000 years": {"topic": "RawDelay", "delivery_timestamp": {"seconds": 10**11}},
}


class Calls:
    """Calls of one client, and the code of each answer by what was asked."""

    def __init__(self, client: Client, endpoints: Any) -> None:
        self.client = client
        self.endpoints = endpoints
        self.found: dict[str, Any] = {}

    async def note(self, case: str, calling: Awaitable[Any]) -> Any:
        try:
            answer = await calling
        except grpc.aio.AioRpcError as wrong:
            self.found[case] = f"grpc {wrong.code().name}"
            return None
        self.found[case] = Code(answer.status.code).name
        return answer

    async def ask(self, case: str, rpc: str, **fields: Any) -> Any:
        return await self.note(f"{rpc}: {case}", self.client.call(rpc, **fields))

    # --- each RPC -------------------------------------------------------------------------------

    async def without_a_client_id(self) -> None:
        named, self.client.metadata["x-mq-client-id"] = self.client.client_id, ""
        for rpc in UNARY:
            await self.ask("no client id", rpc)
        self.client.metadata["x-mq-client-id"] = named

    async def unserved(self) -> None:
        for rpc in (*PULLS, "SyncLiteSubscription"):
            await self.ask("nothing", rpc)

    async def routes(self) -> None:
        for topic in ("", "a b", "t" * 128, "TBW102", "RawUnknown"):
            fields = {"topic": resource(topic), "endpoints": self.endpoints}
            await self.ask(topic[:10], "QueryRoute", **fields)
            await self.ask(topic[:10], "QueryAssignment", group=resource(GROUP), **fields)
        for topic in TOPICS:
            fields = {"topic": resource(topic), "endpoints": self.endpoints}
            route = await self.ask(topic, "QueryRoute", **fields)
            self.found[f"queues of {topic}"] = [
                [
                    *(one.id, one.permission, one.broker.name, one.broker.id),
                    *(list(one.accept_message_types), one.broker.endpoints == self.endpoints),
                ]
                for one in route.message_queues
            ]
            given = await self.ask(topic, "QueryAssignment", group=resource(GROUP), **fields)
            self.found[f"assignments of {topic}"] = [
                [one.message_queue.id, one.message_queue.broker.name] for one in given.assignments
            ]
        for group in ("", "a b", "CID_RMQ_SYS_x"):
            fields = {"topic": resource("RawNormal"), "endpoints": self.endpoints}
            await self.ask(f"group {group}", "QueryAssignment", group=resource(group), **fields)

    async def without_settings(self) -> None:
        await self.ask("no settings", "Heartbeat", group=resource(GROUP))
        await self.ask("no settings", "NotifyClientTermination", group=resource(GROUP))

    async def sends(self) -> None:
        send = self.client.send
        await self.ask("nothing", "SendMessage")
        two = [message("RawNormal", "x"), message("RawFifo", "x")]
        await self.ask("two topics", "SendMessage", messages=two)
        one = await self.note("SendMessage: one", send("RawNormal", "one", message_id="ONE"))
        self.found["entries of one"] = [
            [entry.status.code, entry.message_id, entry.offset] for entry in one.entries
        ]
        many = await self.note("SendMessage: three", send("RawFifo", *"abc", message_group="g"))
        self.found["entries of three"] = len(many.entries)
        for case, fields in REFUSED_SENDS.items():
            given = {"body": "x", "topic": "RawNormal"} | fields
            topic, body = given.pop("topic"), given.pop("body")
            await self.note(f"SendMessage: {case}", send(topic, body, **given))

    async def receives(self) -> None:
        """Of a client that has told its settings."""
        receive = self.client.receive
        refused: dict[str, tuple[str, str, dict[str, Any]]] = {
            "a system topic": ("TBW102", GROUP, {}),
            "an unknown topic": ("RawUnknown", GROUP, {}),
            "a system group": ("RawNormal", "CID_RMQ_SYS_x", {}),
            "invisible for 1 s": ("RawNormal", GROUP, {"invisible_duration": {"seconds": 1}}),
            "invisible for a day": (
                *("RawNormal", GROUP),
                {"invisible_duration": {"seconds": DAY_SECONDS}},
            ),
            "SQL without a text": (
                *("RawNormal", GROUP),
                {"filter_expression": new("FilterExpression", type=FILTERS["SQL"])},
            ),
        }
        for case, (topic, group, fields) in refused.items():
            await self._received(case, receive(topic, group, **fields))
        found = await self._received("one", receive("RawNormal", GROUP))
        got = next(each for each in found if each.system_properties.message_id == "ONE")
        system = got.system_properties
        self.found["what was received"] = [
            *(got.topic.name, got.body.decode(), system.message_id, system.message_type),
            *(system.body_encoding, system.body_digest.type, system.body_digest.checksum),
            *(system.delivery_attempt, system.queue_offset, len(system.receipt_handle.split())),
        ]
        await self._settle(got)

    async def _received(self, case: str, receiving: Awaitable[tuple[Any, list[Any]]]) -> list[Any]:
        try:
            status, found = await receiving
        except grpc.aio.AioRpcError as wrong:
            self.found[f"ReceiveMessage: {case}"] = f"grpc {wrong.code().name}"
            return []
        self.found[f"ReceiveMessage: {case}"] = Code(status.code).name
        return found

    async def _settle(self, got: Any) -> None:
        """Change, forward and acknowledge a message that was received."""
        system = got.system_properties
        handle, topic = system.receipt_handle, resource("RawNormal")
        common = {"topic": topic, "group": resource(GROUP), "message_id": system.message_id}
        for case, seconds in (("below 0", -1), ("a day", DAY_SECONDS)):
            fields = {"receipt_handle": handle, "invisible_duration": {"seconds": seconds}}
            await self.ask(case, "ChangeInvisibleDuration", **common, **fields)
        fields = {"receipt_handle": handle, "invisible_duration": {"seconds": 60}}
        changed = await self.ask("a minute", "ChangeInvisibleDuration", **common, **fields)
        self.found["words of a changed handle"] = len(changed.receipt_handle.split())
        rpc = "ForwardMessageToDeadLetterQueue"
        short = changed.receipt_handle.rpartition(" ")[0]
        await self.ask("no log offset", rpc, **common | {"message_id": "B"}, receipt_handle=short)
        await self.ask("nothing", "AckMessage", topic=topic, group=resource(GROUP))
        for case, text in (("no handle", "odd"), ("an unknown broker", _at_no_broker(handle))):
            await self._acked(case, [{"message_id": "B", "receipt_handle": text}])
        good = {"message_id": system.message_id, "receipt_handle": changed.receipt_handle}
        entry = {"message_id": "B", "receipt_handle": _at_no_broker(handle)}
        await self._acked("one good, one of an unknown broker", [good, entry])
        await self._acked("a blank topic", [good], topic="")

    async def _acked(self, case: str, entries: list[Any], topic: str = "RawNormal") -> None:
        fields = {"topic": resource(topic), "group": resource(GROUP), "entries": entries}
        answer = await self.ask(case, "AckMessage", **fields)
        self.found[f"entries of {case}"] = [Code(one.status.code).name for one in answer.entries]

    async def transactions(self) -> None:
        kind = TYPES["TRANSACTION"]
        sent = await self.client.send("RawTransaction", "half", message_type=kind)
        (entry,) = sent.entries
        fields: dict[str, Any] = {"topic": resource("RawTransaction"), "resolution": COMMIT}
        for case, given in (("no id", ""), ("an unknown id", "odd"), ("its id", "")):
            found = entry.transaction_id if case == "its id" else given
            more = {"message_id": entry.message_id, "transaction_id": found}
            await self.ask(case, "EndTransaction", **fields, **more)

    async def recalls(self) -> None:
        for topic, handle in (("RawNormal", "odd"), ("RawDelay", "odd"), ("RawDelay", "")):
            fields = {"topic": resource(topic), "recall_handle": handle}
            await self.ask(f"{handle} of {topic}", "RecallMessage", **fields)

    async def wrong_settings(self) -> None:
        """What ends a telemetry stream, and what does not."""
        stream = self.client.telemetry()
        await stream.write(new("TelemetryCommand", settings=new("Settings")))
        case = "Telemetry: neither publishing nor subscription"
        try:
            self.found[case] = Code((await stream.read()).status.code).name
        except grpc.aio.AioRpcError as wrong:
            self.found[case] = f"grpc {wrong.code().name}"


def _at_no_broker(handle: str) -> str:
    """The same handle as if of another broker."""
    words = handle.split(" ")
    words[5] = "no-such-broker"
    return " ".join(words)


@asynccontextmanager
async def _client(port: int, name: str) -> AsyncIterator[Client]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield Client(channel, name)


async def raw_codes(namesrv: str, port: int) -> dict[str, Any]:
    """The codes of a proxy's answers, by call and case."""
    async with Admin(namesrv) as admin:
        for topic, kind in TOPICS.items():
            await admin.create_topic(topic, 1, attributes={"message.type": kind})
    endpoints = new("Endpoints", scheme=1)
    endpoints.addresses.add(host="127.0.0.1", port=port)
    async with _client(port, "raw-1") as client, _client(port, "raw-2") as other:
        calls = Calls(client, endpoints)
        for part in (
            *(calls.without_a_client_id, calls.unserved, calls.routes, calls.without_settings),
            *(calls.sends, calls.transactions, calls.recalls),
        ):
            await part()
        stream = client.telemetry()
        await stream.write(new("TelemetryCommand", settings=consumer(GROUP, "RawNormal")))
        calls.found["Telemetry: of a consumer"] = Code((await stream.read()).status.code).name
        await calls.receives()
        stream.cancel()
        calls.client = other
        await calls.wrong_settings()
        return calls.found
