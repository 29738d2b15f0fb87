"""`--processes`: members that end, that are damaged, and that restart in turn."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aerobee.broker.topics.missed_deletions import MissedDeletions
from aerobee.client.blocking import Admin, Consumer, Message, Producer
from prometheus_client.parser import text_string_to_metric_families

from ..command import SMALL, Daemon, aerobee, refused, running

SECONDS = 120


@contextmanager
def group(folder: Path, *words: str) -> Iterator[Daemon]:
    """A name server and a group of two."""
    free = ("--namesrv-port", "0", "--listen-port", "0", "--set", "httpPort=0")
    name = ("--set", "brokerName=a", "--store", str(folder / "store"))
    with running(folder, "up", "--processes", "2", *free, *name, *SMALL, *words) as daemon:
        yield daemon


def page(daemon: Daemon, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(daemon.page + path, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def until(look: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # another process has no event for us


def pid_of(daemon: Daemon, member: str) -> int:
    row = page(daemon, "")[1].partition(f"<span>{member}</span>")[2].partition("</tr>")[0]
    return int(re.findall(r'data-column="PROCESS"><span>([\d,]+)', row)[0].replace(",", ""))


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
            until(lambda: len(admin.topic_config("made-by-a-send")) == 2, "the topic is on one")
            assert {one.broker_name for one in admin.route("made-by-a-send").broker_datas} == {
                "a-0",
                "a-1",
            }
            admin.create_topic("made-by-admin", queues=3)
            configs = admin.topic_config("made-by-admin")
            assert {one.write_queue_nums for one in configs.values()} == {3}
            assert len(configs) == 2
        with Producer(daemon.namesrv) as producer:
            for number in range(20):
                producer.send(Message("made-by-admin", b"%d" % number))
        assert values(daemon, "rocketmq_messages_in_total") == {"a": 21}
        each = values(daemon, "aerobee_member_messages_in_total")
        assert sorted(each) == ["a-0", "a-1"]
        assert sum(each.values()) == 21
        assert min(each.values()) >= 5  # a busy machine may have one sent again elsewhere
        assert page(daemon, "readyz") == (200, "ok\n")


@pytest.mark.smoke
def test_a_member_that_is_killed_comes_back_with_its_messages(tmp_path: Path) -> None:
    with group(tmp_path, "--set", "flushDiskType=SYNC_FLUSH") as daemon:
        with Producer(daemon.namesrv) as producer:
            before = [producer.send(Message("kept", b"before")) for _ in range(16)]
            os.kill(pid_of(daemon, "a-0"), signal.SIGKILL)
            # The others serve: each send goes to one that is there.
            during = [producer.send(Message("kept", b"during")) for _ in range(16)]
        until(lambda: page(daemon, "healthz")[1] == "ok\n", "a-0 did not come back")
        assert values(daemon, "aerobee_member_restarts_total") == {"a-0": 1, "a-1": 0}
        read = aerobee(
            *("sub", "kept", "-n", daemon.namesrv, "--from", "earliest"),
            *("--count", str(len(before) + len(during))),
        )
        assert read.stdout.count("before") == 16
        assert read.stdout.count("during") == 16
    log = (tmp_path / "up.stderr").read_text()
    assert "a-0: it ended with code -9; it starts again in 0.5 s" in log


def test_a_damaged_member_stays_down_and_learns_later_which_topics_were_deleted(
    tmp_path: Path,
) -> None:
    with group(tmp_path) as daemon, Admin(daemon.namesrv) as admin:
        for topic in ("orders", "deleted"):
            admin.create_topic(topic, queues=1)
            with Producer(daemon.namesrv) as producer:
                sent = [producer.send(Message(topic, b"kept")) for _ in range(2)]
            assert {each.queue.broker_name for each in sent} == {"a-0", "a-1"}
    topics = tmp_path / "store" / "a-1" / "config" / "topics.json"
    whole = topics.read_bytes()
    topics.write_bytes(b"no topics")
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
        until(missed.topics, "the deletion is not noted")
        topics.write_bytes(whole)
        os.kill(daemon.child.pid, signal.SIGHUP)
        until(lambda: page(daemon, "healthz")[1] == "ok\n", "SIGHUP did not start a-1")
        assert missed.topics() == []
        with Admin(daemon.namesrv) as admin:
            assert "deleted" not in admin.topics()
        words = ("sub", "orders", "-n", daemon.namesrv, "--from", "earliest", "--count", "3")
        assert sorted(aerobee(*words).stdout.split()) == ["kept", "kept", "x"]


def test_sighup_restarts_in_turn_without_a_failed_send(tmp_path: Path) -> None:
    with group(tmp_path, "--restart-pause", "1", "--log-level", "info") as daemon:
        before = {name: pid_of(daemon, name) for name in ("a-0", "a-1")}
        sent: list[str] = []
        end = threading.Event()
        faults: list[BaseException] = []

        def send() -> None:
            try:
                with Producer(daemon.namesrv) as producer:
                    while not end.wait(0.02):  # a core is left for the others
                        sent.append(body := f"m{len(sent)}.")
                        producer.send(Message("rolling", body.encode()))
            except BaseException as wrong:
                faults.append(wrong)

        sender = threading.Thread(target=send)
        sender.start()
        os.kill(daemon.child.pid, signal.SIGHUP)
        stderr = tmp_path / "up.stderr"
        until(lambda: "all 2 members have restarted" in stderr.read_text(), "no restart")
        end.set()
        sender.join(SECONDS)
        assert faults == []
        after = {name: pid_of(daemon, name) for name in before}
        assert all(after[name] != before[name] for name in before)
        words = ("sub", "rolling", "-n", daemon.namesrv, "--from", "earliest")
        read = aerobee(*words, "--count", str(len(sent)))
        got = set(re.findall(r"m\d+\.", read.stdout))
        assert got == set(sent)
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
    until(lambda: not any(is_there(pid) for pid in pids), "a member goes on")


def test_members_of_a_larger_group_are_read_to_their_end(tmp_path: Path) -> None:
    with group(tmp_path) as daemon, Producer(daemon.namesrv) as producer:
        with Admin(daemon.namesrv) as admin:
            admin.create_topic("shrunk", queues=1)
        with Consumer(daemon.namesrv, group="g", topics=["shrunk"], start="earliest") as consumer:
            for _ in range(2):
                producer.send(Message("shrunk", b"read"))
            for _ in range(2):
                message = consumer.receive(SECONDS)
                assert message is not None
                message.ack()
        sent = [producer.send(Message("shrunk", b"left")).queue.broker_name for _ in range(4)]
        assert sorted(sent) == ["a-0", "a-0", "a-1", "a-1"]
    with group(tmp_path, "--processes", "1", "--restart-pause", "0.1") as daemon:
        assert "a-1 on" in daemon.ready
        until(
            lambda: (
                values(daemon, "aerobee_member_up") == {"a-0": 1, "a-1": 1}
                and "2 of group g shrunk" in page(daemon, "")[1]
            ),
            "nothing keeps a-1",
        )
        with Producer(daemon.namesrv) as producer:
            for _ in range(4):
                assert producer.send(Message("shrunk", b"new")).queue.broker_name == "a-0"
        with Consumer(daemon.namesrv, group="g", topics=["shrunk"], start="earliest") as consumer:
            for _ in range(8):
                message = consumer.receive(SECONDS)
                assert message is not None
                message.ack()
        until(lambda: ">empty<" in page(daemon, "")[1], "a-1 was not read to its end")
    with group(tmp_path, "--processes", "1") as daemon:
        assert "a-1" not in daemon.ready


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
