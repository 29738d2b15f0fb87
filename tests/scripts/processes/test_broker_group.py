"""`--processes`: members that end, that are damaged, and that restart in turn."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.topics.missed_deletions import MissedDeletions
from aerobee.client.blocking import Admin, Consumer, Message, Producer
from prometheus_client.parser import text_string_to_metric_families

from ...waiting import PROCESS, wait_until
from ..command import SMALL, Daemon, aerobee, refused, running

MEMBERS = {"a-0", "a-1"}
KEPT = tuple(f"kept {n}" for n in range(8))


@contextmanager
def group(folder: Path, *words: str) -> Iterator[Daemon]:
    """A name server and a group of two."""
    free = ("--namesrv-port", "0", "--listen-port", "0", "--set", "httpPort=0")
    name = ("--set", "brokerName=a", "--store", str(folder / "store"))
    with running(folder, "up", "--processes", "2", *free, *name, *SMALL, *words) as daemon:
        yield daemon


def page(daemon: Daemon, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(daemon.page + path, timeout=PROCESS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def send(daemon: Daemon, topic: str, bodies: Iterable[str]) -> set[str]:
    """Send these; the members that have them. A slow answer may have one sent again elsewhere."""
    with Producer(daemon.namesrv) as producer:
        sent = [producer.send(Message(topic, one.encode()), timeout=PROCESS) for one in bodies]
    return {one.queue.broker_name or "" for one in sent}


def read(daemon: Daemon, topic: str, wanted: set[str], group: str = "readers") -> None:
    """Returns once a group has these bodies; some may come again."""
    left = set(wanted)
    with Consumer(daemon.namesrv, group=group, topics=[topic], start="earliest") as consumer:
        while left:
            message = consumer.receive(PROCESS)
            assert message is not None, left
            left.discard(message.body.decode())
            message.ack()


def members(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """The members by name, as the group's status has them."""
    return {one["member"]: one for one in json.loads(page(daemon, "status")[1])["members"]}


def pid_of(daemon: Daemon, member: str) -> int:
    found: int = members(daemon)[member]["process"]
    return found


def values(daemon: Daemon, family: str) -> dict[str, float]:
    """A family's values by member or broker."""
    found: dict[str, float] = {}
    for one in text_string_to_metric_families(page(daemon, "metrics")[1]):
        for sample in one.samples:
            if sample.name == family:
                key = sample.labels.get("member") or sample.labels.get("node_id", "")
                found[key] = found.get(key, 0) + sample.value
    return found


def test_a_topic_is_on_every_member_and_metrics_are_added_up(tmp_path: Path) -> None:
    with group(tmp_path) as daemon:
        assert aerobee("pub", "made-by-a-send", "-n", daemon.namesrv, data="x\n").returncode == 0
        with Admin(daemon.namesrv) as admin:
            wait_until(lambda: len(admin.topic_config("made-by-a-send")) == 2, "it is on one")
            route = admin.route("made-by-a-send").broker_datas
            assert {one.broker_name for one in route} == MEMBERS
            admin.create_topic("made-by-admin", queues=3)
            configs = admin.topic_config("made-by-admin")
            assert {one.write_queue_nums for one in configs.values()} == {3}
            assert len(configs) == 2
        send(daemon, "made-by-admin", map(str, range(20)))
        each = values(daemon, "aerobee_member_messages_in_total")
        assert each.keys() == MEMBERS
        assert values(daemon, "rocketmq_messages_in_total") == {"a": sum(each.values())}
        assert sum(each.values()) >= 21
        assert min(each.values()) >= 1
        assert page(daemon, "readyz") == (200, "ok\n")


@pytest.mark.smoke
def test_a_member_that_is_killed_comes_back_with_its_messages(tmp_path: Path) -> None:
    with group(tmp_path, "--set", "flushDiskType=SYNC_FLUSH") as daemon:
        with Admin(daemon.namesrv) as admin:
            admin.create_topic("kept", queues=1)  # on both: a first send makes it on one
        bodies = [f"{when} {n}" for when in ("before", "during") for n in range(16)]
        assert send(daemon, "kept", bodies[:16]) == MEMBERS
        os.kill(pid_of(daemon, "a-0"), signal.SIGKILL)
        send(daemon, "kept", bodies[16:])  # the others serve: each goes to one that is there
        wait_until(lambda: page(daemon, "healthz")[1] == "ok\n", "a-0 did not come back")
        assert values(daemon, "aerobee_member_restarts_total") == {"a-0": 1, "a-1": 0}
        read(daemon, "kept", set(bodies))
    log = (tmp_path / "up.stderr").read_text()
    assert "a-0: it ended with code -9; it starts again in 0.5 s" in log


def test_a_damaged_member_stays_down_and_learns_later_which_topics_were_deleted(
    tmp_path: Path,
) -> None:
    with group(tmp_path) as daemon, Admin(daemon.namesrv) as admin:
        for topic in ("orders", "deleted"):
            admin.create_topic(topic, queues=1)
            assert send(daemon, topic, KEPT) == MEMBERS
    topics = tmp_path / "store" / "a-1" / "config" / "topics.json"
    whole = topics.read_bytes()
    for each in (topics, topics.with_name("topics.json.bak")):
        each.write_bytes(b"no topics")
    with group(tmp_path, "--restart-pause", "0.1") as daemon:
        code, text = page(daemon, "healthz")
        assert code == 200
        assert "a-1 is down: " in text
        assert "topics.json" in text
        assert "a-1 is down" in daemon.ready
        assert aerobee("pub", "orders", "-n", daemon.namesrv, data="x\n").returncode == 0
        assert values(daemon, "aerobee_member_up") == {"a-0": 1, "a-1": 0}
        assert aerobee("topics", "delete", "deleted", "-n", daemon.namesrv).returncode == 0
        missed = MissedDeletions(topics.parents[1])
        wait_until(missed.topics, "the deletion is not noted")
        topics.write_bytes(whole)
        os.kill(daemon.child.pid, signal.SIGHUP)
        wait_until(lambda: page(daemon, "healthz")[1] == "ok\n", "SIGHUP did not start a-1")
        assert missed.topics() == []
        with Admin(daemon.namesrv) as admin:
            assert "deleted" not in admin.topics()
        read(daemon, "orders", {*KEPT, "x"})


def test_sighup_restarts_in_turn_without_a_failed_send(tmp_path: Path) -> None:
    with group(tmp_path, "--restart-pause", "1", "--log-level", "info") as daemon:
        before = {name: pid_of(daemon, name) for name in ("a-0", "a-1")}
        sent: set[str] = set()
        end = threading.Event()
        faults: list[BaseException] = []

        def send_on() -> None:
            try:
                with Producer(daemon.namesrv) as producer:
                    while not end.wait(0.02):  # a core is left for the others
                        body = f"m{len(sent)}"
                        producer.send(Message("rolling", body.encode()), timeout=PROCESS)
                        sent.add(body)
            except BaseException as wrong:
                faults.append(wrong)

        sender = threading.Thread(target=send_on)
        sender.start()
        os.kill(daemon.child.pid, signal.SIGHUP)
        stderr = tmp_path / "up.stderr"
        wait_until(lambda: "all 2 members have restarted" in stderr.read_text(), "no restart")
        end.set()
        sender.join(PROCESS)
        assert faults == []
        after = {name: pid_of(daemon, name) for name in before}
        assert all(after[name] != before[name] for name in before)
        read(daemon, "rolling", sent)
    log = stderr.read_text()
    assert log.index("a-0 restarts") < log.index("a-1 restarts")
    assert re.search(r"^a-1 .* INFO aerobee.scripts.serving: stopping$", log, re.M)


def test_more_processes_than_processors_are_said(tmp_path: Path) -> None:
    store = f"storePathRootDir={tmp_path}"
    free = ("--set", "listenPort=0", "--set", "httpPort=-1", "--set", store)
    many = str((os.cpu_count() or 1) + 1)
    with running(tmp_path, "broker", "--processes", many, *free, *SMALL) as daemon:
        assert f"-{int(many) - 1} on 127.0.0.1:" in daemon.ready
    assert f"{many} processes are more than the" in (tmp_path / "broker.stderr").read_text()


def test_a_number_that_is_none_starts_nothing(tmp_path: Path) -> None:
    assert "--processes is 'x'" in refused("broker", "--processes", "x", "--set", "listenPort=0")


def test_members_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    pids: list[int] = []

    def kill() -> None:
        with group(tmp_path) as daemon:
            pids.extend(pid_of(daemon, name) for name in ("a-0", "a-1"))
            daemon.child.kill()

    with pytest.raises(AssertionError):  # its exit code is not 0
        kill()
    assert len(pids) == 2
    wait_until(lambda: not any(is_there(pid) for pid in pids), "a member goes on")


def test_members_of_a_larger_group_are_read_to_their_end(tmp_path: Path) -> None:
    with group(tmp_path) as daemon:
        with Admin(daemon.namesrv) as admin:
            admin.create_topic("shrunk", queues=1)
        send(daemon, "shrunk", ("read 1", "read 2"))
        read(daemon, "shrunk", {"read 1", "read 2"}, "g")
        assert send(daemon, "shrunk", [f"left {n}" for n in range(4)]) == MEMBERS
    with group(tmp_path, "--processes", "1", "--restart-pause", "0.1") as daemon:
        assert "a-1 on" in daemon.ready
        wait_until(
            lambda: (
                values(daemon, "aerobee_member_up") == {"a-0": 1, "a-1": 1}
                and re.search(r"[1-9]\d* of group g shrunk", members(daemon)["a-1"]["reason"])
            ),
            lambda: members(daemon),
        )
        assert send(daemon, "shrunk", [f"new {n}" for n in range(4)]) == {"a-0"}
        left = {f"{when} {n}" for when in ("left", "new") for n in range(4)}
        read(daemon, "shrunk", left, "g")
        wait_until(lambda: members(daemon)["a-1"]["state"] == "empty", lambda: members(daemon))
    with group(tmp_path, "--processes", "1") as daemon:
        assert "a-1" not in daemon.ready


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
