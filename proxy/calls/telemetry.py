"""Telemetry, Heartbeat and NotifyClientTermination: clients come, stay and leave."""

import asyncio
import logging
from typing import Any

from ...client.errors import AerobeeError
from ...protocol.bodies.group import SubscriptionGroupConfig
from ..handles.keeper import DELAYS_MS
from ..http2 import status as grpc
from ..http2.call import Call
from ..http2.status import GrpcError
from ..messages import definitions, times
from ..messages.names import group_of, topic_of
from ..messages.status import OK_STATUS, Code, StatusError, of_error
from ..settings.config import ProxyConfig
from ..telemetry.clients import Client
from .service import Service, client_id_of

log = logging.getLogger(__name__)

TelemetryCommand = definitions.message("TelemetryCommand")
HeartbeatResponse = definitions.message("HeartbeatResponse")
NotifyResponse = definitions.message("NotifyClientTerminationResponse")
_TYPES = definitions.enum("ClientType")
_KNOWN_TYPES = {_TYPES[name] for name in ("PRODUCER", "PUSH_CONSUMER", "SIMPLE_CONSUMER")}
CLIENTS_AT_ONCE = 100  # are checked before other work goes on
TOPICS_MAX = 10_000  # of one client
_UNKNOWN_CLIENT = "cannot find client settings for this client"


async def telemetry(service: Service, call: Call) -> None:
    """The stream of a client: settings both ways, commands to the client."""
    try:
        client_id = client_id_of(call)
    except StatusError as wrong:
        call.put(TelemetryCommand(status=wrong.status()))
        return
    try:
        while (command := await call.read()) is not None:
            service.clients.heard(client_id)
            if command.WhichOneof("command") != "settings":
                service.commands.answered(client_id, command)
            else:
                try:
                    await service.access.check("Telemetry", call, command)
                except StatusError as wrong:
                    call.put(TelemetryCommand(status=wrong.status()))
                    return
                await _settings(service, call, client_id, command.settings)
    except (StatusError, AerobeeError) as wrong:
        found = of_error(wrong)
        code = grpc.INVALID_ARGUMENT if 40_000 <= found.code < 50_000 else grpc.INTERNAL
        said = f"process client telemetryCommand failed. {found.message}"
        raise GrpcError(code, said) from None
    finally:
        service.clients.stream_ended(client_id, call)


async def _settings(service: Service, call: Call, client_id: str, sent: Any) -> None:
    kind = sent.WhichOneof("pub_sub")
    if kind is None:
        raise StatusError(
            Code.BAD_REQUEST, "there is no publishing or subscription data in settings"
        )
    if kind == "publishing":
        if len(sent.publishing.topics) > TOPICS_MAX:
            raise StatusError(
                Code.BAD_REQUEST,
                f"the settings have {len(sent.publishing.topics)} topics, the limit is "
                f"{TOPICS_MAX}",
            )
        for topic in sent.publishing.topics:
            topic_of(topic)
    else:
        group_of(sent.subscription.group)
        for entry in sent.subscription.subscriptions:
            topic_of(entry.topic)
    client = service.clients.put(client_id, sent, call)
    await service.keeper.fetch(client_id)
    await tell(service, client)
    await service.membership.join(client)


async def tell(service: Service, client: Client) -> None:
    """Send a client its settings."""
    group = await service.topics.group(client.group) if client.group else None
    _put(client, _settings_for(service, client, group))
    client.told_for = group


async def tell_changes(service: Service) -> None:
    """Send new settings to the consumers whose group changed."""
    for number, client in enumerate(service.clients):
        if number % CLIENTS_AT_ONCE == 0:
            await asyncio.sleep(0)  # calls go on between
        if not client.streams or not client.group:
            continue
        try:
            group = await service.topics.group(client.group)
        except (StatusError, AerobeeError) as wrong:
            log.info("group %s can't be read: %s", client.group, wrong)
            continue
        if group is client.told_for or not client.streams:
            continue
        told = _settings_for(service, client, group)
        if told.SerializeToString(deterministic=True) != client.told:
            _put(client, told)
        client.told_for = group


def _put(client: Client, told: Any) -> None:
    client.told = told.SerializeToString(deterministic=True)
    client.streams[-1].put(TelemetryCommand(status=OK_STATUS, settings=told))


def _settings_for(service: Service, client: Client, group: SubscriptionGroupConfig | None) -> Any:
    """The settings to send to a client; `group` is that of a consumer."""
    if group is not None:
        return consumer_settings(client.settings, service.config, group)
    return producer_settings(client.settings, service.config)


async def heartbeat(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The client is still there."""
    client = service.clients.get(client_id)
    if client is None or client.settings is None:
        raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN_CLIENT)
    kind = client.settings.client_type
    if kind not in _KNOWN_TYPES:
        raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, f"unrecognized client type: {kind}")
    if kind != _TYPES["PRODUCER"]:
        group_of(request.group)
    return HeartbeatResponse(status=OK_STATUS)


async def notify_termination(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The client leaves; its unfinished messages are visible soon."""
    client = service.clients.remove(client_id)
    if client is None:
        raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN_CLIENT)
    await service.keeper.release(client_id)
    await service.membership.leave(client_id)
    return NotifyResponse(status=OK_STATUS)


def producer_settings(sent: Any, config: ProxyConfig) -> Any:
    """The settings of a producer: what it sent, with what the proxy decides."""
    found, policy = _begun(sent)
    policy.max_attempts = config.grpc_client_producer_max_attempts
    backoff = policy.exponential_backoff
    times.set_ms(backoff.initial, config.grpc_client_producer_backoff_initial_millis)
    times.set_ms(backoff.max, config.grpc_client_producer_backoff_max_millis)
    backoff.multiplier = config.grpc_client_producer_backoff_multiplier
    found.publishing.validate_message_type = config.enable_topic_message_type_check
    found.publishing.max_body_size = config.max_message_size
    return found


def consumer_settings(sent: Any, config: ProxyConfig, group: SubscriptionGroupConfig) -> Any:
    """The settings of a consumer: what it sent, with what the proxy and its group decide."""
    found, policy = _begun(sent)
    subscription = found.subscription
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    poll_ms = config.grpc_client_consumer_max_long_polling_timeout_millis
    times.set_ms(subscription.long_polling_timeout, poll_ms)
    policy.max_attempts = group.retry_max_times + 1
    rule = group.group_retry_policy
    if rule.type == "EXPONENTIAL":
        exponential = rule.exponential_retry_policy
        initial, most, factor = 5_000, 7_200_000, 2
        if exponential is not None:
            initial, most, factor = exponential.initial, exponential.max, exponential.multiplier
        times.set_ms(policy.exponential_backoff.initial, initial)
        times.set_ms(policy.exponential_backoff.max, most)
        policy.exponential_backoff.multiplier = factor
    else:
        custom = rule.customized_retry_policy
        delays = custom.next if custom is not None and custom.next else DELAYS_MS
        for ms in delays:
            times.set_ms(policy.customized_backoff.next.add(), ms)
    return found


def _begun(sent: Any) -> tuple[Any, Any]:
    """A copy of the sent settings without metrics, and its policy of retries, which is empty."""
    found = type(sent)()
    found.CopyFrom(sent)
    found.metric.on = False
    found.backoff_policy.Clear()
    return found, found.backoff_policy
