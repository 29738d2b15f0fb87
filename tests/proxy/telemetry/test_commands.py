"""Commands of mqadmin to gRPC clients: stack traces, messages to consume now, new connections."""

import asyncio
from typing import Any

import pytest
from aerobee.client import Admin, Producer
from aerobee.client import Message as RemotingMessage
from aerobee.protocol.errors import Refusal
from aerobee.protocol.headers.clients import ConsumerRunningInfo as RunningInfo
from aerobee.proxy.messages.status import Code
from aerobee.proxy.telemetry import commands
from aerobee.testing import LocalCluster

from ...client.clock import Clock
from ..support import Client, Setup, new, setup
from .talking import consumer, talk


async def listening(proxied: Setup, topic: str, group: str) -> tuple[Client, Any]:
    await proxied.create(topic)
    client = proxied.client()
    stream = await talk(client, consumer(group, topic))
    await proxied.proxy.service.membership.refresh()
    return client, stream


async def test_a_stack_trace_comes_from_the_client(proxied: Setup) -> None:
    client, stream = await listening(proxied, "Traced", "tracers")
    async with Admin(proxied.cluster.name_server) as admin:
        asked = asyncio.create_task(admin.running_info("tracers", client.client_id, stacks=True))
        nonce = (await stream.read()).print_thread_stack_trace_command.nonce
        answer = new("TelemetryCommand", status={"code": Code.OK})
        answer.thread_stack_trace.nonce = nonce
        answer.thread_stack_trace.thread_stack_trace = "main: waits"
        await stream.write(answer)
        info = await asked
    assert info.jstack == "main: waits"
    assert [each.topic for each in info.subscription_set] == ["Traced"]


async def test_without_stacks_the_proxy_answers_by_itself(proxied: Setup) -> None:
    client, _ = await listening(proxied, "Known", "knowers")
    async with Admin(proxied.cluster.name_server) as admin:
        info = await admin.running_info("knowers", client.client_id)
    assert info.jstack is None
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["grpcClientLanguage"] == "PYTHON"


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.INTERNAL_ERROR, None),
    ],
)
async def test_a_message_is_consumed_at_once_and_its_result_comes_back(
    proxied: Setup, code: int, result: str | None
) -> None:
    topic = f"Verified{int(code)}"
    client, stream = await listening(proxied, topic, "verifiers")
    async with (
        Producer(proxied.cluster.name_server) as sender,
        Admin(proxied.cluster.name_server) as admin,
    ):
        receipt = await sender.send(RemotingMessage(topic, b"again"))
        asked = asyncio.create_task(
            admin.consume_directly("verifiers", client.client_id, receipt.offset_msg_id, topic)
        )
        command = (await stream.read()).verify_message_command
        assert command.message.body == b"again"
        assert command.message.topic.name == topic
        answer = new("TelemetryCommand", status={"code": code, "message": "so it is"})
        answer.verify_message_result.nonce = command.nonce
        await stream.write(answer)
        found = await asked
    assert found.consume_result == result
    assert found.remark == f"from gRPC client {client.client_id}: so it is"


async def test_a_client_that_refuses_or_is_silent_is_an_error_with_the_reason(
    cluster: LocalCluster,
) -> None:
    async with setup(cluster, grpc_proxy_relay_request_timeout_in_seconds=1) as proxied:
        clock = Clock()
        client, stream = await listening(proxied, "Silent", "silents")
        asked = asyncio.create_task(told(proxied, client, "silents"))
        nonce = (await stream.read()).print_thread_stack_trace_command.nonce
        answer = new("TelemetryCommand", status={"code": Code.UNSUPPORTED, "message": "no"})
        answer.thread_stack_trace.nonce = nonce
        await stream.write(answer)
        with pytest.raises(Refusal, match=rf"client {client.client_id} refused: no"):
            await asked
        asked = asyncio.create_task(told(proxied, client, "silents"))
        await stream.read()
        await clock.advance(2)
        with pytest.raises(Refusal, match=r"call remote timeout: .* within 1 s"):
            await asked


async def told(proxied: Setup, client: Client, group: str) -> Any:
    """The proxy's response to a broker that wants the stacks of a client."""
    header: Any = RunningInfo(group, client.client_id, True)
    nothing: Any = None
    return await proxied.proxy.service.commands.on_running_info(header, nothing, nothing)


async def test_only_the_client_that_was_asked_can_answer(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with setup(cluster, grpc_proxy_relay_request_timeout_in_seconds=1) as proxied:
        clock = Clock()
        client, stream = await listening(proxied, "Forged", "forgers")
        _, other = await listening(proxied, "Forged", "others")
        asked = asyncio.create_task(told(proxied, client, "forgers"))
        nonce = (await stream.read()).print_thread_stack_trace_command.nonce
        answer = new("TelemetryCommand", status={"code": Code.OK})
        answer.thread_stack_trace.nonce = nonce
        await other.write(answer)
        await other.write(new("TelemetryCommand", settings=consumer("others", "Forged")))
        await other.read()  # so the forged answer is read, too
        await clock.advance(2)
        with pytest.raises(Refusal, match="call remote timeout"):
            await asked
        monkeypatch.setattr(commands, "WAITING_MAX", 0)
        with pytest.raises(Refusal, match="the limit is 0"):
            await told(proxied, client, "forgers")


async def test_a_client_can_be_told_to_connect_again(proxied: Setup) -> None:
    client, stream = await listening(proxied, "Moved", "movers")
    known = proxied.proxy.service.clients.get(client.client_id)
    assert known is not None
    proxied.proxy.service.commands.reconnect(known)
    assert (await stream.read()).reconnect_endpoints_command.nonce
