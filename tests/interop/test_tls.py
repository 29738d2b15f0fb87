"""Java's clients over TLS against aerobee, whose certificate no client knows, as with RocketMQ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.harness import java_side
from aerobee.harness.clusters import AerobeeCluster

from .programs import SECONDS, Java

TOPIC = "Hidden"


@pytest.fixture
def enforcing(java_is_here: None, tmp_path: Path) -> Iterator[AerobeeCluster]:
    """A broker that speaks TLS alone, and a name server that takes both."""
    cluster = AerobeeCluster(tmp_path / "cluster", {"tlsServerMode": "enforcing"})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def hidden(java_is_here: None, tmp_path: Path) -> Iterator[Java]:
    """Java programs whose clients speak TLS with every server."""
    programs = Java(tmp_path / "hidden", flags=(*java_side.SHORT_LIVED, "-Dtls.enable=true"))
    yield programs
    programs.stop()


@pytest.mark.smoke
def test_java_sends_and_receives_over_tls_and_not_without(
    enforcing: AerobeeCluster, hidden: Java, java: Java
) -> None:
    orders = {"namesrv": enforcing.namesrv, "topic": TOPIC}
    plain = java.start("Produce", **orders, timeout=1_000)
    sent = hidden.produce(**orders, count=20, timeout=30_000)
    reader = hidden.start("PullConsume", **orders, count=20, seconds=SECONDS)
    reader.wait_event("done", SECONDS)
    got = sorted(each["key"] for each in reader.events("message"))
    assert got == sorted(each["key"] for each in sent)
    assert len(got) == 20
    assert plain.wait_event("done", SECONDS)["failed"] == 1
    assert plain.events("sent") == []
