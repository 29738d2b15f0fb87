"""A cluster with a proxy before it, and raw calls to it with the package grpcio."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from aerobee.client import Admin
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.proxy.http2.balance import Worker
from aerobee.proxy.messages import definitions
from aerobee.proxy.messages.status import Code
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.testing import LocalCluster

from ..waiting import LONG

TYPES = definitions.enum("MessageType")
CLIENT_TYPES = definitions.enum("ClientType")
FILTERS = definitions.enum("FilterType")
SECONDS = LONG  # for any call


def new(name: str, /, **fields: Any) -> Any:
    """A message of the definitions."""
    return definitions.message(name)(**fields)


def resource(name: str) -> Any:
    return new("Resource", name=name)


class Client:
    """Raw calls of one client id. `metadata` may be changed between calls."""

    def __init__(self, channel: grpc.aio.Channel, client_id: str) -> None:
        self.channel = channel
        self.client_id = client_id
        self.metadata = {
            "x-mq-client-id": client_id,
            "x-mq-language": "PYTHON",
            "x-mq-client-version": "5.1.0",
            "x-mq-protocol": "v2",
        }

    def headers(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.metadata.items())

    async def call(self, rpc: str, *, seconds: float | None = SECONDS, **fields: Any) -> Any:
        """The answer of an RPC with one."""
        method = self.channel.unary_unary(
            f"/{definitions.SERVICE}/{rpc}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=definitions.message(f"{rpc}Response").FromString,
        )
        return await method(
            new(f"{rpc}Request", **fields), timeout=seconds, metadata=self.headers()
        )

    def stream(self, rpc: str, *, seconds: float | None = SECONDS, **fields: Any) -> Any:
        """The stream of answers of an RPC."""
        method = self.channel.unary_stream(
            f"/{definitions.SERVICE}/{rpc}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=definitions.message(f"{rpc}Response").FromString,
        )
        return method(new(f"{rpc}Request", **fields), timeout=seconds, metadata=self.headers())

    def telemetry(self) -> Any:
        """A telemetry stream."""
        method = self.channel.stream_stream(
            f"/{definitions.SERVICE}/Telemetry",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=definitions.message("TelemetryCommand").FromString,
        )
        return method(metadata=self.headers())

    async def send(self, topic: str, *bodies: str, **system: Any) -> Any:
        """The answer to a send of these bodies; `system` are system properties of each."""
        messages = [message(topic, body, **system) for body in bodies]
        return await self.call("SendMessage", messages=messages)

    async def receive(self, topic: str, group: str, **fields: Any) -> tuple[Any, list[Any]]:
        """Status and messages of a receive."""
        fields.setdefault("batch_size", 32)
        fields.setdefault("filter_expression", new("FilterExpression", expression="*"))
        if not fields.get("auto_renew"):
            fields.setdefault("invisible_duration", {"seconds": 10})
        fields.setdefault("long_polling_timeout", {"seconds": 5})
        queue = new("MessageQueue", topic=resource(topic))
        queue.broker.name = fields.pop("broker", "")
        status, found = None, []
        answers = self.stream(
            "ReceiveMessage", group=resource(group), message_queue=queue, **fields
        )
        async for answer in answers:
            kind = answer.WhichOneof("content")
            if kind == "status":
                status = answer.status
            elif kind == "message":
                found.append(answer.message)
        assert status is not None
        return status, found

    async def ack(self, topic: str, group: str, *messages: Any) -> Any:
        """The answer to an ack of these messages."""
        entries = [
            {
                "message_id": each.system_properties.message_id,
                "receipt_handle": each.system_properties.receipt_handle,
            }
            for each in messages
        ]
        return await self.call(
            "AckMessage", topic=resource(topic), group=resource(group), entries=entries
        )


def message(topic: str, body: str | bytes, **system: Any) -> Any:
    """A message to send."""
    user = system.pop("user_properties", {})
    system.setdefault("message_id", uuid.uuid4().hex.upper())
    raw = body.encode() if isinstance(body, str) else body
    found = new("Message", topic=resource(topic), body=raw, system_properties=system)
    for name, value in user.items():
        found.user_properties[name] = value
    return found


def bodies(messages: list[Any]) -> list[str]:
    return [each.body.decode() for each in messages]


def code_of(answer: Any) -> str:
    """The name of an answer's code."""
    return Code(answer.status.code).name


class Setup:
    """A cluster and a proxy before it, in the loop of a test."""

    def __init__(self, cluster: LocalCluster, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self._channels: list[grpc.aio.Channel] = []

    def client(self, client_id: str = "", port: int = 0) -> Client:
        """A new client on a connection of its own."""
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port or self.proxy.port}", options)
        self._channels.append(channel)
        return Client(channel, client_id or uuid.uuid4().hex)

    async def create(self, topic: str, kind: str = "NORMAL", queues: int = 2) -> None:
        """A topic of this type."""
        async with Admin(self.cluster.name_server) as admin:
            await admin.create_topic(topic, queues, attributes={"message.type": kind})

    async def create_group(self, group: str, **fields: Any) -> None:
        """A group with these settings."""
        async with Admin(self.cluster.name_server) as admin:
            await admin.update_group(SubscriptionGroupConfig(group, **fields))

    async def ready(self, client: Client, topic: str, group: str) -> None:
        """Let a new group begin: what is sent from now on is for it."""
        await client.receive(topic, group, long_polling_timeout={"seconds": 0})

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


@asynccontextmanager
async def setup(
    cluster: LocalCluster, worker: Worker | None = None, **settings: Any
) -> AsyncIterator[Setup]:
    """A proxy before a running cluster."""
    settings.setdefault("grpc_shutdown_time_seconds", 1)
    config = ProxyConfig(namesrv_addr=cluster.name_server, grpc_server_port=0, **settings)
    proxy = Proxy(config, clock=cluster.clock, worker=worker)
    await proxy.start()
    found = Setup(cluster, proxy)
    try:
        yield found
    finally:
        await found.close()
        await proxy.stop()


__all__ = ["Client", "Setup", "SubscriptionGroupConfig", "setup"]
