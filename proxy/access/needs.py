"""What a user must be allowed for each RPC."""

from collections.abc import Callable
from typing import Any

from ...protocol.security.policies import GROUP, PUB, SUB, TOPIC, Need

_Reader = Callable[[Any], list[Need]]


def needs(name: str, request: Any) -> list[Need]:
    """The needed permissions of a call of this RPC."""
    return _NEEDS[name](request)


def _publish(topic: Any) -> Need:
    return Need(TOPIC, topic.name, (PUB,))


def _read(topic: Any) -> Need:
    return Need(TOPIC, topic.name, (SUB,))


def _consume(group: Any) -> Need:
    return Need(GROUP, group.name, (SUB,))


def _of_send(request: Any) -> list[Need]:
    return [_publish(request.messages[0].topic)] if request.messages else []


def _of_queue(request: Any) -> list[Need]:
    return [_consume(request.group), _read(request.message_queue.topic)]


def _of_both(request: Any) -> list[Need]:
    return [_consume(request.group), _read(request.topic)]


def _of_group(request: Any) -> list[Need]:
    return [_consume(request.group)] if request.group.name else []


def _of_settings(command: Any) -> list[Need]:
    settings = command.settings
    if settings.WhichOneof("pub_sub") == "publishing":
        return [_publish(topic) for topic in settings.publishing.topics]
    subscription = settings.subscription
    wanted = [_read(entry.topic) for entry in subscription.subscriptions]
    return [_consume(subscription.group), *wanted]


_NEEDS: dict[str, _Reader] = {
    "QueryRoute": lambda request: [Need(TOPIC, request.topic.name, (PUB, SUB))],
    "QueryAssignment": _of_both,
    "SendMessage": _of_send,
    "RecallMessage": lambda request: [_publish(request.topic)],
    "EndTransaction": lambda request: [_publish(request.topic)],
    "ReceiveMessage": _of_queue,
    "PullMessage": _of_queue,
    "UpdateOffset": _of_queue,
    "GetOffset": _of_queue,
    "QueryOffset": lambda request: [_read(request.message_queue.topic)],
    "AckMessage": _of_both,
    "ForwardMessageToDeadLetterQueue": _of_both,
    "ChangeInvisibleDuration": lambda request: [_consume(request.group)],
    "Heartbeat": _of_group,
    "NotifyClientTermination": _of_group,
    "Telemetry": _of_settings,
}
