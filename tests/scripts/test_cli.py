"""The client commands against a running `aerobee up`: pub, sub, topics, groups, cluster, lag."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from aerobee.harness.java_side import free_broker_port
from aerobee.scripts import cli
from aerobee.scripts.commands import pub
from aerobee.scripts.output.command_error import INTERRUPTED
from aerobee.testing import LocalCluster

from ..waiting import PROCESS
from .command import AEROBEE, Daemon, Inside, environment, output, running, up


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("up")
    with running(folder, *up(folder / "store")) as one:
        yield one


def test_each_line_of_standard_input_becomes_a_message(inside: Inside, daemon: Daemon) -> None:
    said = inside.output("pub", "lines", "-n", daemon.namesrv, data="one\n\ntwo\r\nthree")
    assert said == "sent 3 messages to lines\n"
    found = inside.read("lines", "--namesrv", daemon.namesrv, "--from", "earliest", "-n", "3")
    assert sorted(found.splitlines()) == ["one", "three", "two"]


def test_a_file_is_published_with_tag_keys_and_properties(
    inside: Inside, daemon: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "orders.txt"
    file.write_text("order 1\n")
    words = ["--tags", "paid", "--key", "o-1", "--key", "c-7", "-p", "shop=berlin", str(file)]
    inside.output("pub", "marked", "-n", daemon.namesrv, *words)
    text = inside.read(
        "marked", "--namesrv", daemon.namesrv, "--from", "earliest", "-n", "1", "--json"
    )
    found = json.loads(text)
    assert found["body"] == "order 1"
    assert (found["topic"], found["tags"], found["keys"]) == ("marked", "paid", ["o-1", "c-7"])
    assert found["properties"] == {"shop": "berlin"}


def test_json_from_sub_goes_back_into_pub(inside: Inside, daemon: Daemon) -> None:
    lines = [
        json.dumps({"body": "text ü", "tags": "a", "keys": ["k"], "properties": {"x": "1"}}),
        json.dumps({"bodyBase64": "/wD+", "tags": "b"}),
        json.dumps({"body": {"nested": [1, 2]}}),
    ]
    inside.output("pub", "first", "--json", "-n", daemon.namesrv, data="\n".join(lines))
    sub = ["--namesrv", daemon.namesrv, "--from", "earliest", "-n", "3", "--json"]
    copied = inside.read("first", *sub)
    inside.output("pub", "second", "--json", "-n", daemon.namesrv, data=copied)

    def contents(text: str) -> list[tuple[object, ...]]:
        found = map(json.loads, text.splitlines())
        return sorted(
            tuple(
                str(one.get(name)) for name in ("body", "bodyBase64", "tags", "keys", "properties")
            )
            for one in found
        )

    assert contents(inside.read("second", *sub)) == contents(copied)
    assert {json.loads(line).get("body") for line in copied.splitlines()} == {
        "text ü",
        '{"nested": [1, 2]}',
        None,
    }


def test_a_line_that_is_no_json_object_is_named(inside: Inside, daemon: Daemon) -> None:
    said = inside.refused(
        "pub", "bad", "--json", "-n", daemon.namesrv, data='{"body": "ok"}\nnot json\n'
    )
    assert "line 2 is not a JSON object with a body" in said


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "it is JSON of another kind"),
        ('{"tags": "x"}', "it has neither body nor bodyBase64"),
        ('{"bodyBase64": "!!"}', "Only base64 data is allowed"),
        ('{"bodyBase64": 5}', "bodyBase64 must be a text"),
        ('{"body": "x", "tags": 5}', "tags must be a text"),
        ('{"body": "x", "keys": [5]}', "keys must be a list of texts"),
        ('{"body": "x", "tags": 0}', "tags must be a text"),
        ('{"body": "x", "keys": {}}', "keys must be a list of texts"),
        ('{"body": "x", "properties": [1]}', "properties must be an object"),
        ('{"body": "x", "properties": {"n": null}}', "property 'n' must be a text, it is null"),
        ('{"body": "x", "properties": {"b": true}}', "property 'b' must be a text, it is true"),
        ('{"body": "x", "properties": {"l": [1]}}', "property 'l' must be a text, it is [1]"),
    ],
)
def test_a_line_with_something_of_the_wrong_kind_says_what(
    inside: Inside, daemon: Daemon, line: str, reason: str
) -> None:
    said = inside.refused("pub", "bad", "--json", "-n", daemon.namesrv, data=line)
    assert f"line 1 is not a JSON object with a body ({reason})" in said


def test_a_thousand_lines_are_spread_over_the_queues(inside: Inside, daemon: Daemon) -> None:
    inside.output(
        "pub", "many", "-n", daemon.namesrv, data="".join(f"line {n}\n" for n in range(1000))
    )
    text = inside.read(
        "many", "--namesrv", daemon.namesrv, "--from", "earliest", "-n", "1000", "--json"
    )
    found = [json.loads(line) for line in text.splitlines()]
    assert {one["body"] for one in found} == {f"line {n}" for n in range(1000)}
    assert {one["queue"] for one in found} == {0, 1, 2, 3}


def test_sub_shows_only_the_tags_that_were_asked_for(inside: Inside, daemon: Daemon) -> None:
    for tag in ("a", "b", "c"):
        inside.output("pub", "tagged", "--tags", tag, "-n", daemon.namesrv, data=f"with {tag}")
    words = ["--namesrv", daemon.namesrv, "--from", "earliest", "--tags", "a || c", "-n", "2"]
    assert sorted(inside.read("tagged", *words).splitlines()) == ["with a", "with c"]
    grouped = inside.read("tagged", *words, "--group", "taggers")
    assert sorted(grouped.splitlines()) == ["with a", "with c"]


def test_sub_waits_for_a_topic_that_does_not_exist_yet(daemon: Daemon) -> None:
    words = [*AEROBEE, "sub", "later", "--namesrv", daemon.namesrv, "-n", "1"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as watcher:
        assert watcher.stderr is not None
        assert "does not exist yet" in watcher.stderr.readline()
        output("pub", "later", "-n", daemon.namesrv, data="the first")
        said, _ = watcher.communicate(timeout=PROCESS)
    assert (said, watcher.returncode) == ("the first\n", 0)


def test_sub_ends_quietly_when_its_reader_has_seen_enough(daemon: Daemon) -> None:
    output("pub", "long", "-n", daemon.namesrv, data="x" * 1000 + "\n" + "y" * 1000)
    words = [*AEROBEE, "sub", "long", "--namesrv", daemon.namesrv, "--from", "earliest"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()
        watcher.stdout.readline()
        watcher.stdout.close()
        output("pub", "long", "-n", daemon.namesrv, data="z\n")
        assert watcher.stderr is not None
        assert watcher.stderr.read() == ""
        assert watcher.wait(PROCESS) == 0


def test_topics_groups_and_lag_tell_what_was_done(inside: Inside, daemon: Daemon) -> None:
    where = ["-n", daemon.namesrv]
    inside.output("pub", "counted", *where, data="1\n2\n3\n4\n5\n")
    words = ["--namesrv", daemon.namesrv, "--from", "earliest", "--group", "counters"]
    inside.read("counted", *words, "-n", "5")
    inside.output("pub", "counted", *where, data="6\n7\n")

    topics = [json.loads(line) for line in inside.output("topics", "--json", *where).splitlines()]
    [counted] = [one for one in topics if one["topic"] == "counted"]
    assert (counted["queues"], counted["messages"]) == (4, 7)
    assert not any(one["topic"].startswith(("%", "TBW102", "SCHEDULE")) for one in topics)

    lags = [json.loads(line) for line in inside.output("lag", "--json", *where).splitlines()]
    behind = [one for one in lags if (one["group"], one["topic"]) == ("counters", "counted")]
    assert [one["behind_by"] for one in behind] == [2]

    queues = inside.output("lag", "counters", *where).splitlines()
    assert queues[0].split() == ["TOPIC", "BROKER", "QUEUE", "CONSUMED", "END", "BEHIND", "BY"]
    ours = [line.split() for line in queues[1:] if line.startswith("counted ")]
    assert sum(int(one[-1]) for one in ours) == 2

    groups = [json.loads(line) for line in inside.output("groups", "--json", *where).splitlines()]
    [counters] = [one for one in groups if one["group"] == "counters"]
    assert (counters["members"], counters["topics"]) == (0, "counted")


def test_a_topic_is_created_with_its_queues_and_deleted(inside: Inside, daemon: Daemon) -> None:
    where = ["-n", daemon.namesrv]
    assert "created topic made" in inside.output(
        "topics", "create", "made", "--queues", "3", *where
    )
    assert "made exists already" in inside.output("topics", "create", "made", *where)
    assert "has 5 queues" in inside.output("topics", "create", "made", "--queues", "5", *where)
    [made] = [
        line.split() for line in inside.output("topics", *where).splitlines() if "made" in line
    ]
    assert made[2] == "5"
    assert "deleted topic made" in inside.output("topics", "delete", "made", *where)
    assert "there is no topic made" in inside.refused("topics", "delete", "made", *where)
    assert "there is no group nobody" in inside.refused("groups", "delete", "nobody", *where)
    assert not any(
        line.startswith("made ") for line in inside.output("topics", *where).splitlines()
    )


def test_a_topic_or_a_group_is_listed_alone(inside: Inside, daemon: Daemon) -> None:
    for name in ("alone", "beside"):
        inside.output("pub", name, "-n", daemon.namesrv, data="x\n")
        sub = ["--from", "earliest", "-n", "1", "--group", f"of-{name}"]
        inside.read(name, "--namesrv", daemon.namesrv, *sub)
    for command, name in (("topics", "alone"), ("groups", "of-alone")):
        lines = inside.output(command, "list", name, "-n", daemon.namesrv).splitlines()
        assert [line.split()[0] for line in lines[1:]] == [name]
        said = inside.refused(command, "list", "nosuch", "-n", daemon.namesrv)
        assert f"there is no {command[:-1]} nosuch; `aerobee {command} --all` lists" in said


def test_cluster_lists_the_broker(inside: Inside, daemon: Daemon) -> None:
    [broker] = inside.output("cluster", "--json", "-n", daemon.namesrv).splitlines()
    found = json.loads(broker)
    assert (found["role"], found["address"]) == ("master", daemon.broker)


@pytest.mark.parametrize("command", ["topics", "groups", "cluster", "lag", "doctor"])
def test_without_a_name_server_one_sentence_says_so(inside: Inside, command: str) -> None:
    assert "127.0.0.1:1" in inside.refused(command, "-n", "127.0.0.1:1")


def test_pub_without_a_name_server_says_what_was_sent(inside: Inside) -> None:
    said = inside.refused("pub", "orders", "-n", "127.0.0.1:1", data="hello\n")
    assert "0 messages were sent before line 1: " in said


def test_pub_waits_for_its_broker_when_it_is_to_keep_trying(
    tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("before\n")
    second.write_text("one\ntwo\n")
    port = free_broker_port()  # no neighbour gets it between stop and start
    with LocalCluster(listenPort=port, haListenPort=port + 1) as cluster:
        where = ("-n", cluster.name_server)
        assert inside("pub", "orders", str(first), *where)[0] == 0
        cluster._run(cluster.brokers[0].stop())
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            if not pauses:
                cluster.restart()
            pauses.append(seconds)

        monkeypatch.setattr(pub, "time", SimpleNamespace(sleep=pause))
        code, out, error = inside("pub", "orders", str(second), *where, "--keep-trying")
        assert (code, out) == (0, "sent 2 messages to orders\n"), error
        assert set(pauses) == {pub.RETRY_SECONDS}
        (line,) = error.splitlines()
        assert line.startswith("aerobee pub: ")
        assert line.endswith("; trying until it works")
        found = inside("sub", "orders", *where, "--from", "earliest", "-n", "3")
        assert (found[0], sorted(found[1].split())) == (0, ["before", "one", "two"])


def test_an_illegal_topic_name_is_refused(inside: Inside, daemon: Daemon) -> None:
    assert "../up" in inside.refused("pub", "../up", "-n", daemon.namesrv, data="hello\n")
    assert "../up" in inside.refused("topics", "create", "../up", "-n", daemon.namesrv)


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert cli.main(["topics"]) == INTERRUPTED
    assert capfd.readouterr() == ("", "")


def test_a_command_whose_output_is_closed_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after >&-
    assert cli.main(["broker", "--print-config"]) == 0
