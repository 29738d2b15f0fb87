"""The clients of a proxy: known by their ids, gone after a while."""

from types import SimpleNamespace
from typing import Any

from aerobee.proxy.telemetry.clients import Clients

from ..support import new


class Call:
    """As much of a call as clients need."""

    peer = ("192.0.2.7", 5_000)
    connection = SimpleNamespace()

    def text(self, name: bytes) -> str:
        return "JAVA" if name == b"x-mq-language" else "5.0.8"


class Table:
    """Clients under a clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.gone: list[str] = []
        self.clients = Clients(
            self.gone.append, expire_seconds=120, grace_seconds=10, clock=lambda: self.now
        )

    def put(self, client_id: str, *topics: str) -> Any:
        settings = new("Settings")
        for topic in topics:
            settings.publishing.topics.add(name=topic)
        call: Any = Call()
        self.clients.put(client_id, settings, call)
        return call

    def after(self, seconds: float) -> list[str]:
        """The ids that are gone by then."""
        self.now += seconds
        self.gone.clear()
        self.clients.sweep()
        return list(self.gone)


def test_a_lost_connection_has_a_time_of_grace() -> None:
    table = Table()
    call = table.put("a")
    table.clients.stream_ended("a", call)
    assert table.after(9) == []
    back = table.put("a")
    assert table.after(60) == []
    table.clients.stream_ended("a", back)
    assert table.after(11) == ["a"]
    assert table.clients.get("a") is None


def test_a_client_with_a_stream_stays_however_silent() -> None:
    table = Table()
    table.put("a")
    assert table.after(1_000) == []


def test_producers_of_a_topic_are_asked_by_turns() -> None:
    table = Table()
    for client_id in ("a", "b"):
        table.put(client_id, "T")
    found = [table.clients.producer_of("T") for _ in range(4)]
    assert [client.client_id for client in found if client is not None] == ["a", "b", "a", "b"]
    assert table.clients.producer_of("other") is None


def test_a_producer_that_left_is_asked_no_more() -> None:
    table = Table()
    call = table.put("a", "T")
    table.clients.stream_ended("a", call)
    assert table.clients.producer_of("T") is None
    assert "T" in table.clients.produced_topics()
    table.clients.remove("a")
    assert "T" not in table.clients.produced_topics()


def test_a_client_may_change_its_topics() -> None:
    table = Table()
    table.put("a", "T")
    table.put("a", "U")
    assert table.clients.produced_topics() == ["U"]
    client = table.clients.get("a")
    assert client is not None
    assert (client.language, client.version, client.address) == (
        "JAVA",
        "5.0.8",
        "192.0.2.7:5000",
    )


def test_a_client_that_never_said_what_it_is_is_gone_after_silence() -> None:
    table = Table()
    table.clients.seen("a")
    assert table.after(100) == []
    table.clients.heard("a")
    assert table.after(100) == []
    assert table.after(21) == ["a"]
