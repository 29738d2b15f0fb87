"""The clients of the proxy: what each said about itself, its streams, whether it is still there.

A client is known by its id. Its settings come with telemetry; everything that a call needs of a
group is asked of the broker, so a call of an unknown client works, too.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...client.base.identity import now_ms
from ..http2.call import Call
from ..messages import definitions
from ..messages.status import Code, StatusError

CLIENTS_MAX = 100_000
_SIMPLE = definitions.enum("ClientType")["SIMPLE_CONSUMER"]


@dataclass(slots=True, eq=False)
class Client:
    """One client. `heard_at` in seconds of the monotonic clock; `lost_at` is 0 while it has a
    telemetry stream or never had one."""

    client_id: str
    language: str = ""
    version: str = ""
    address: str = ""
    settings: Any = None
    since_ms: int = 0  # its first settings
    told: bytes = b""  # the settings that it was sent last
    told_for: object = None  # its group's settings when they were last checked
    streams: list[Call] = field(default_factory=list)
    heard_at: float = 0.0
    lost_at: float = 0.0

    def has_settings(self, field: str) -> bool:
        """True if the client sent settings with this field."""
        return self.settings is not None and bool(self.settings.HasField(field))

    @property
    def topics(self) -> list[str]:
        """The topics that it publishes to."""
        if self.settings is None:
            return []
        return [topic.name for topic in self.settings.publishing.topics]

    @property
    def subscribed(self) -> list[str]:
        """The topics that it subscribes to."""
        if not self.has_settings("subscription"):
            return []
        return [entry.topic.name for entry in self.settings.subscription.subscriptions]

    def named(self, topic: str) -> Any:
        """The Resource by which it publishes or subscribes to a topic; None if it doesn't."""
        if self.settings is None:
            return None
        resources = [
            *self.settings.publishing.topics,
            *(entry.topic for entry in self.settings.subscription.subscriptions),
        ]
        return next((one for one in resources if one.name == topic), None)

    @property
    def consume_type(self) -> str:
        """The name of the kind of consumer in remoting, as RocketMQ's proxy gives it."""
        is_simple = self.settings is not None and self.settings.client_type == _SIMPLE
        return "CONSUME_ACTIVELY" if is_simple else "CONSUME_PASSIVELY"

    @property
    def group(self) -> str:
        """The client's consumer group, "" without one."""
        if not self.has_settings("subscription"):
            return ""
        return str(self.settings.subscription.group.name)


class Clients:
    """All clients, by id. `on_gone` is called with the id of one that is gone."""

    def __init__(
        self,
        on_gone: Callable[[str], None],
        *,
        expire_seconds: float,
        grace_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients: dict[str, Client] = {}
        self._on_gone = on_gone
        self._expire_seconds = expire_seconds
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._producers: dict[str, dict[str, Client]] = {}  # by topic and client id

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._clients.values()))

    def get(self, client_id: str) -> Client | None:
        """A client, if it is known."""
        return self._clients.get(client_id)

    def heard(self, client_id: str) -> Client | None:
        """A call of this client came."""
        found = self._clients.get(client_id)
        if found is not None:
            found.heard_at = self._clock()
        return found

    def seen(self, client_id: str) -> None:
        """A client without settings works on messages: it is gone once it is silent for too long.

        So it is after a restart of the proxy, until its next telemetry.
        """
        if client_id not in self._clients and len(self._clients) < CLIENTS_MAX:
            self._clients[client_id] = Client(client_id, heard_at=self._clock())

    def put(self, client_id: str, settings: Any, call: Call) -> Client:
        """Add a client, or renew its settings; StatusError if there are too many clients."""
        found = self._clients.get(client_id)
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                raise StatusError(
                    Code.TOO_MANY_REQUESTS,
                    f"{len(self._clients)} clients are connected, the limit is {CLIENTS_MAX}; "
                    "end some, or start another proxy",
                )
            found = self._clients[client_id] = Client(client_id)
        self._forget_topics(found)
        found.settings = settings
        found.since_ms = found.since_ms or now_ms()
        found.language = call.text(b"x-mq-language")
        found.version = call.text(b"x-mq-client-version")
        found.address = f"{call.peer[0]}:{call.peer[1]}"
        found.heard_at = self._clock()
        found.lost_at = 0.0
        if call not in found.streams:
            found.streams.append(call)
        for topic in found.topics:
            self._producers.setdefault(topic, {})[client_id] = found
        return found

    def stream_ended(self, client_id: str, call: Call) -> None:
        """A telemetry stream is over; the client has a time of grace to come back."""
        found = self._clients.get(client_id)
        if found is not None and call in found.streams:
            found.streams.remove(call)
            if not found.streams:
                found.lost_at = self._clock()

    def remove(self, client_id: str) -> Client | None:
        """A client has left."""
        found = self._clients.pop(client_id, None)
        if found is not None:
            self._forget_topics(found)
        return found

    def produced_topics(self) -> list[str]:
        """The topics that clients publish to."""
        return list(self._producers)

    def producer_of(self, topic: str) -> Client | None:
        """A connected producer of this topic; the next in turn at each call."""
        found = self._producers.get(topic)
        if not found:
            return None
        for client_id in list(found):
            client = found.pop(client_id)
            found[client_id] = client
            if client.streams:
                return client
        return None

    def sweep(self) -> None:
        """Forget clients that lost their connection or said nothing for too long."""
        now = self._clock()
        for client in list(self._clients.values()):
            is_lost = client.lost_at and now - client.lost_at > self._grace_seconds
            is_silent = now - client.heard_at > self._expire_seconds
            if is_lost or (is_silent and not client.streams):
                self.remove(client.client_id)
                self._on_gone(client.client_id)

    def _forget_topics(self, client: Client) -> None:
        for topic in client.topics:
            of_topic = self._producers.get(topic)
            if of_topic is not None:
                of_topic.pop(client.client_id, None)
                if not of_topic:
                    del self._producers[topic]
