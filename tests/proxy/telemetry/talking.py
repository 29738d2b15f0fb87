"""Settings of clients, and telemetry streams that begin with them."""

from typing import Any

from ..support import CLIENT_TYPES, Client, code_of, new


def consumer(group: str, topic: str, kind: str = "PUSH_CONSUMER") -> Any:
    """The settings of a consumer."""
    settings = new("Settings", client_type=CLIENT_TYPES[kind])
    settings.subscription.group.name = group
    settings.subscription.subscriptions.add().topic.name = topic
    return settings


def producer(*topics: str) -> Any:
    """The settings of a producer."""
    settings = new("Settings", client_type=CLIENT_TYPES["PRODUCER"])
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings


async def talk(client: Client, settings: Any) -> Any:
    """A telemetry stream on which the client got its settings."""
    stream = client.telemetry()
    await stream.write(new("TelemetryCommand", settings=settings))
    assert code_of(await stream.read()) == "OK"
    return stream
