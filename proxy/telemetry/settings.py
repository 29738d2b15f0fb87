"""The settings that a client gets: what it sent, with what the proxy and its group decide."""

from typing import Any

from ...protocol.bodies.group import SubscriptionGroupConfig
from ..handles.keeper import DELAYS_MS
from ..messages import times
from ..settings.config import ProxyConfig


def of_producer(sent: Any, config: ProxyConfig) -> Any:
    """The settings of a producer."""
    found = type(sent)()
    found.CopyFrom(sent)
    policy = found.backoff_policy
    policy.Clear()
    policy.max_attempts = config.grpc_client_producer_max_attempts
    backoff = policy.exponential_backoff
    times.set_ms(backoff.initial, config.grpc_client_producer_backoff_initial_millis)
    times.set_ms(backoff.max, config.grpc_client_producer_backoff_max_millis)
    backoff.multiplier = config.grpc_client_producer_backoff_multiplier
    found.publishing.validate_message_type = config.enable_topic_message_type_check
    found.publishing.max_body_size = config.max_message_size
    found.metric.on = False
    return found


def of_consumer(sent: Any, config: ProxyConfig, group: SubscriptionGroupConfig) -> Any:
    """The settings of a consumer."""
    found = type(sent)()
    found.CopyFrom(sent)
    subscription = found.subscription
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    poll_ms = config.grpc_client_consumer_max_long_polling_timeout_millis
    times.set_ms(subscription.long_polling_timeout, poll_ms)
    policy = found.backoff_policy
    policy.Clear()
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
    found.metric.on = False
    return found
