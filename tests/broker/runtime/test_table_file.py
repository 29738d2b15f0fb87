"""Tables in RocketMQ's files: a change costs one line, and is there after a stop and a crash."""

import json
import shutil
from pathlib import Path

import pytest
from aerobee.broker.groups.groups import Groups
from aerobee.broker.runtime.stats import Stats
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.broker.topics.topics import Topics
from aerobee.protocol import codes
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.codec import fastjson
from aerobee.protocol.headers.topics import TopicName, UpdateTopic
from aerobee.store.files.json_journal import JsonJournal

from ..conftest import Caller


def clock() -> int:
    return 1_700_000_000_000


def topics_in(folder: Path) -> Topics:
    topics = Topics(folder / "topics.json", BrokerConfig(), Stats("c", clock), clock)
    topics.load()
    return topics


def groups_in(folder: Path) -> Groups:
    groups = Groups(folder / "subscriptionGroup.json", BrokerConfig(), clock)
    groups.load()
    return groups


def journal_of(folder: Path) -> Path:
    return folder / "topics.json.journal"


def table(folder: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]]
    found = json.loads((folder / "topics.json").read_text())["topicConfigTable"]
    return found


def test_a_change_is_one_line_whatever_the_number_of_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = topics_in(tmp_path)
    topics.put_all([TopicConfig(f"T{number}") for number in range(2_000)])
    topics.save()
    written: list[bytes] = []
    append = JsonJournal.append

    def note(journal: JsonJournal, lines: bytes) -> None:
        written.append(lines)
        append(journal, lines)

    monkeypatch.setattr(JsonJournal, "append", note)
    dumped: list[object] = []
    dump = fastjson.dump

    def count(value: object, **options: bool) -> bytes:
        dumped.append(value)
        return dump(value, **options)

    monkeypatch.setattr(fastjson, "dump", count)
    topics.put(TopicConfig("New"))
    topics.delete("T7")
    assert [one.count(b"\n") for one in written] == [2, 1]  # the first says what the file has
    assert all(len(one) < 500 for one in written)
    assert len(dumped) <= 6


def test_changes_are_there_after_a_crash(tmp_path: Path) -> None:
    topics = topics_in(tmp_path)
    topics.put(TopicConfig("Old", 2, 2))
    topics.put(TopicConfig("Gone"))
    topics.save()
    topics.put_all([TopicConfig("A"), TopicConfig("B", perm=4)])
    topics.put(TopicConfig("Old", 8, 8))
    topics.delete("Gone")
    found = topics_in(tmp_path)
    assert found.all() == topics.all()
    assert found.version == topics.version
    assert found.get("Old") == TopicConfig("Old", 8, 8)
    assert found.get("Gone") is None
    found.save()
    assert not journal_of(tmp_path).exists()
    assert topics_in(tmp_path).all() == topics.all()
    assert topics_in(tmp_path).version == topics.version


def test_groups_and_what_they_may_not_read_are_there_after_a_crash(tmp_path: Path) -> None:
    groups = groups_in(tmp_path)
    groups.put_all([SubscriptionGroupConfig(name) for name in ("a", "b", "c")])
    groups.set_readable("a", "T", False)
    groups.save()
    groups.set_readable("b", "T", False)
    groups.set_readable("a", "T", True)
    groups.delete("c")
    found = groups_in(tmp_path)
    assert found.all() == groups.all()
    assert found.forbidden == groups.forbidden
    assert [found.forbids(name, "T") for name in "ab"] == [False, True]
    master = SubscriptionGroupWrapper(
        {"a": SubscriptionGroupConfig("a")}, {"a": {"U": 4}}, DataVersion(0, 1, 77)
    )
    assert groups.follow(master)
    found = groups_in(tmp_path)
    assert set(found.all()) >= {"a"}
    assert found.get("b") is None
    assert found.version == DataVersion(0, 1, 77)
    assert found.forbids("a", "U")
    assert not found.forbids("b", "T")


def test_changes_while_the_file_is_written_stay_in_the_journal(tmp_path: Path) -> None:
    topics = topics_in(tmp_path)
    topics.put_all([TopicConfig(name) for name in "abcdef"])
    mark = topics.file.mark()
    pieces = topics.pieces(standard=True)
    text = b"".join(next(pieces) for _ in range(3))
    topics.put(TopicConfig("a", 9, 9))  # which the text has by now as it was
    topics.delete("f")
    topics.put(TopicConfig("new"))
    (tmp_path / "topics.json").write_bytes(text + b"".join(pieces))
    assert topics_in(tmp_path).all() == topics.all()  # after a crash here
    topics.file.written(mark)
    found = topics_in(tmp_path)
    assert found.all() == topics.all()
    assert found.version == topics.version
    assert topics.file.is_behind
    topics.save()
    assert topics_in(tmp_path).all() == topics.all()


def test_with_the_bak_in_the_place_of_a_damaged_file_the_journal_counts_too(tmp_path: Path) -> None:
    topics = topics_in(tmp_path)
    topics.put(TopicConfig("A"))
    topics.save()
    topics.put(TopicConfig("B"))
    topics.save()
    topics.put(TopicConfig("C"))
    (tmp_path / "topics.json").write_text("{")
    found = topics_in(tmp_path)
    assert found.get("A") is not None
    assert found.get("C") is not None


def test_a_journal_that_is_not_of_this_file_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics = topics_in(tmp_path)
    topics.put(TopicConfig("A"))
    topics.save()
    topics.put(TopicConfig("B"))
    path = tmp_path / "topics.json"
    text = json.loads(path.read_text())
    text["dataVersion"] = {"counter": 2, "stateVersion": 0, "timestamp": 5}
    text["topicConfigTable"]["OfJava"] = {"topicName": "OfJava"}
    path.write_text(json.dumps(text))  # as another broker does after ours crashed
    found = topics_in(tmp_path)
    assert found.get("OfJava") is not None
    assert found.get("B") is None
    assert "another broker has written the file since" in caplog.text
    assert not journal_of(tmp_path).exists()


def test_a_change_that_can_not_be_written_leaves_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = topics_in(tmp_path)
    topics.put(TopicConfig("A"))
    version = topics.version

    def fail(journal: JsonJournal, lines: bytes) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(JsonJournal, "append", fail)
        with pytest.raises(OSError, match="no"):
            topics.put(TopicConfig("B"))
    assert topics.version == version
    topics.put(TopicConfig("C"))
    assert topics_in(tmp_path).get("C") is not None


async def test_a_stopped_broker_leaves_whole_files_and_no_journal(
    broker: Broker, caller: Caller
) -> None:
    folder = broker.root / "config"
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("A", 3, 5, 6))
    assert (await caller.send("Made")).code == codes.SUCCESS
    assert (await caller.pull("Made", group="new")).code == codes.SUCCESS
    assert journal_of(folder).exists()
    await broker.stop()
    assert table(folder)["A"]["readQueueNums"] == 3
    assert "Made" in table(folder)
    groups = json.loads((folder / "subscriptionGroup.json").read_text())
    assert "new" in groups["subscriptionGroupTable"]
    assert not list(folder.glob("*.journal"))


async def test_a_running_broker_writes_its_files_soon(broker: Broker, caller: Caller) -> None:
    folder = broker.root / "config"
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("A", 3, 5, 6))
    await broker.catch_up()
    assert "A" in table(folder)
    assert not journal_of(folder).exists()


async def test_a_killed_broker_comes_back_with_every_topic_that_it_acknowledged(
    broker: Broker, caller: Caller, tmp_path: Path
) -> None:
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("A", 3, 5, 6))
    await broker.catch_up()
    for name in ("B", "C"):
        await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(name, 3, 5, 6))
    await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("C"))
    copy = tmp_path / "copy" / "config"
    shutil.copytree(broker.root / "config", copy)
    found = topics_in(copy)
    assert [found.get(name) is not None for name in "ABC"] == [True, True, False]
    assert found.version == broker.topics.version
