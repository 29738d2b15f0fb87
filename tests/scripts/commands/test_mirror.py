"""`aerobee mirror` between two clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.client.blocking import Message, Producer
from aerobee.harness.child import Child
from aerobee.testing.cluster import LocalCluster

from ...waiting import PROCESS
from ..command import AEROBEE, Inside, environment


@pytest.fixture(scope="module")
def target() -> Iterator[LocalCluster]:
    with LocalCluster() as one:
        yield one


def test_all_there_is_is_copied_once(
    cluster: LocalCluster, target: LocalCluster, inside: Inside
) -> None:
    with Producer(cluster.name_server) as producer:
        for number in range(3):
            producer.send(Message("mirrored", str(number).encode()))
    words = ["mirror", "--from", cluster.name_server, "--to", target.name_server]
    words += ["--topics", "mirrored", "--groups", "none", "--once"]
    out = inside.output(*words)
    assert out == "3 messages copied, no lag, 1 topic, 4 queues\n"
    [found] = inside.objects(*words, "--json")
    assert found == {
        "topics": 1, "queues": 4, "copied": 0, "lag": 0, "lag_seconds": 0, "failures": [],
    }  # fmt: skip


def test_what_can_not_be_copied_is_told(
    cluster: LocalCluster, target: LocalCluster, inside: Inside
) -> None:
    for one, queues in ((cluster, "3"), (target, "2")):
        create = ("topics", "create", "small", "--queues", queues, "-n", one.name_server)
        assert inside(*create)[0] == 0
    words = ("mirror", "--from", cluster.name_server, "--to", target.name_server, "--once")
    code, out, _ = inside(*words, "--topics", "small", "--groups", "none")
    assert code == 1
    assert "fails: topic small: topic small has 3 queues at the source and 2 at the target" in out


def test_a_signal_ends_it_with_its_last_line(
    cluster: LocalCluster, target: LocalCluster, tmp_path: Path
) -> None:
    with Producer(cluster.name_server) as producer:
        producer.send(Message("endless", b"x"))
    words = ["mirror", "--from", cluster.name_server, "--to", target.name_server, "--json"]
    words += ["--topics", "endless", "--groups", "none", "--report", "0.05"]
    with Child([*AEROBEE, *words], tmp_path / "stderr", environment()) as child:
        child.wait_line(lambda line: json.loads(line)["copied"] == 1, PROCESS)
        assert child.stop(PROCESS) == 0
    last = json.loads(child.lines[-1])
    assert (last["copied"], last["lag"], last["failures"]) == (1, 0, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--topics", "("), "topics is '(', which is no regular expression"),
        (("--start", "tomorrow"), "--start tomorrow is no place to begin"),
    ],
)
def test_wrong_options_are_one_line(
    cluster: LocalCluster, inside: Inside, words: tuple[str, ...], says: str
) -> None:
    where = ("--from", cluster.name_server, "--to", cluster.name_server)
    assert says in inside.refused("mirror", *where, *words)
