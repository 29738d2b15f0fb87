"""Our store and the real one open the same directories, in both directions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.store.backup import taking
from aerobee.store.backup.restoring import restore
from aerobee.store.backup.targets import FolderTarget
from aerobee.store.base.errors import StoreInUse

from . import store_plan
from .programs import SECONDS, Java
from .store_plan import SIZES, Report


@dataclass
class Judge:
    """The real store; each opening is a process."""

    java: Java
    folder: Path

    def start(self, store: Path, settings: dict[str, Any]) -> tuple[Reporter, Path]:
        """Starts the real store in a process of its own; also returns the path of its report."""
        number = len(list(self.folder.iterdir()))
        file = self.folder / f"{number}.settings"
        file.write_text(json.dumps(settings))
        out = self.folder / f"{number}.out"
        return self.java.start("StoreJudge", dir=store, settings=file, out=out), out

    def __call__(
        self,
        store: Path,
        settings: dict[str, Any],
        *,
        kill: bool = False,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Report:
        """What the real store reads in a folder. A plan in the settings makes it write there first.

        `meanwhile` is called while it has the folder open; then it stops cleanly, or by kill -9.
        """
        program, out = self.start(store, settings)
        program.wait_event("done", SECONDS)
        meanwhile()
        if kill:
            program.kill()
        else:
            program.say("stop")
        assert (program.wait(SECONDS) == 0) is not kill
        found: Report = json.loads(out.read_text())
        return found


@pytest.fixture(scope="module")
def judge(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(java, tmp_path_factory.mktemp("judge"))


@dataclass
class Written:
    """A store that the real classes wrote, by a plan; `report` is what they read in it."""

    folder: Path
    settings: dict[str, Any]
    report: Report


@pytest.fixture(scope="module")
def by_java(
    request: pytest.FixtureRequest, judge: Judge, tmp_path_factory: pytest.TempPathFactory
) -> Written:
    """By the settings SIZES, and more where a test asks for them."""
    folder = tmp_path_factory.mktemp("java-store")
    settings: dict[str, Any] = SIZES | getattr(request, "param", {})
    plan, keys = store_plan.make_plan(folder / "scratch", settings)
    settings |= {"plan": plan, "keys": keys}
    return Written(folder / "store", settings, judge(folder / "store", settings))


def seen_by_ours(folder: Path, settings: dict[str, Any]) -> Report:
    """What our store reads in a folder, which it opens and closes."""
    store = store_plan.opened(folder, settings, lambda: 1_700_000_000_000)
    found = store_plan.report(store, settings["keys"])
    store.close()
    return found


def check_same(one: Report, other: Report) -> None:
    """Compares two reports of one store, part by part, for readable messages."""
    assert (one["min"], one["max"]) == (other["min"], other["max"])
    for mine, theirs in zip(one["messages"], other["messages"], strict=True):
        assert mine == theirs
    assert one["queues"].keys() == other["queues"].keys()
    for name, mine in one["queues"].items():
        assert mine == other["queues"][name], name
    assert one["keys"] == other["keys"]


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name, sorted by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    "by_java",
    [
        pytest.param({}, id="plain", marks=pytest.mark.smoke),
        pytest.param({"enabledAppendPropCRC": True}, id="crc"),
    ],
    indirect=True,
)
def test_java_and_ours_write_the_same_bytes(by_java: Written, tmp_path: Path) -> None:
    places = by_java.report["put"]
    times = {place: stored for place, _, stored in places}
    moment = places[0][2]
    store = store_plan.opened(tmp_path / "ours", by_java.settings, lambda: moment)
    for wanted, (place, offset, stored) in zip(by_java.settings["plan"], places, strict=True):
        moment = stored
        assert store_plan.put_all(store, [wanted]) == [(place, offset)]
    store.close()
    assert len(times) == len(places) > 100
    for part in ("commitlog", "consumequeue"):
        theirs, ours = files_of(by_java.folder / part), files_of(tmp_path / "ours" / part)
        assert theirs.keys() == ours.keys()
        for name, data in theirs.items():
            assert ours[name] == data, name
    theirs, ours = files_of(by_java.folder / "index"), files_of(tmp_path / "ours" / "index")
    assert list(theirs.values()) == list(ours.values())
    assert len(theirs) > 2


@pytest.mark.smoke
def test_our_store_reads_in_a_java_store_what_java_reads(by_java: Written, tmp_path: Path) -> None:
    shutil.copytree(by_java.folder, tmp_path / "store")
    check_same(seen_by_ours(tmp_path / "store", by_java.settings), by_java.report)


@pytest.mark.smoke
def test_after_kill_9_java_recovers_our_store_and_our_store_recovers_javas(
    judge: Judge, by_java: Written, tmp_path: Path
) -> None:
    folder, file, out = (tmp_path / name for name in ("store", "settings", "out"))
    file.write_text(json.dumps(by_java.settings))
    words = [sys.executable, store_plan.__file__, str(folder), str(file), str(out)]
    ended = subprocess.run(words, timeout=SECONDS, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (folder / "abort").exists()
    before: Report = json.loads(out.read_text())
    assert len(before["messages"]) > 100

    def is_locked() -> None:
        with pytest.raises(StoreInUse, match="already open by process"):
            seen_by_ours(folder, by_java.settings)

    after = judge(folder, by_java.settings | {"plan": []}, kill=True, meanwhile=is_locked)
    check_same(after, before)
    assert (folder / "abort").exists()
    more = judge(folder, by_java.settings | {"plan": by_java.settings["plan"][:40]}, kill=True)
    assert more["messages"][: len(before["messages"])] == before["messages"]
    assert len(more["messages"]) > len(before["messages"]) + 39
    check_same(seen_by_ours(folder, by_java.settings), more)


@pytest.mark.smoke
def test_java_opens_a_restored_backup_of_our_store_in_use(
    judge: Judge, by_java: Written, tmp_path: Path
) -> None:
    clock = iter(range(1_600_000_000_000, 1 << 62, 3))
    store = store_plan.opened(tmp_path / "store", by_java.settings, lambda: next(clock))
    store_plan.put_all(store, by_java.settings["plan"])
    store.write_staged()
    before = store_plan.report(store, by_java.settings["keys"])
    target = FolderTarget(tmp_path / "target")
    taking.take(store.root, target, version="0", now_ms=lambda: 1_700_000_000_000)
    store.close()
    restore(target, tmp_path / "restored")
    check_same(judge(tmp_path / "restored", by_java.settings | {"plan": []}), before)


@pytest.mark.smoke
def test_each_store_continues_where_the_other_ended(
    judge: Judge, by_java: Written, tmp_path: Path
) -> None:
    folder, settings = tmp_path / "store", by_java.settings
    plan = settings["plan"]
    clock = iter(range(1_600_000_000_000, 1 << 62, 3))
    store = store_plan.opened(folder, settings, lambda: next(clock))
    store_plan.put_all(store, plan[:70])
    ours = store_plan.report(store, settings["keys"])
    refused, _ = judge.start(folder, settings)
    assert "Lock failed" in refused.wait_event("failed", SECONDS)["error"]
    store.close()
    assert not (folder / "abort").exists()
    both = judge(folder, settings | {"plan": plan[70:]})
    assert not (folder / "abort").exists()
    assert both["messages"][: len(ours["messages"])] == ours["messages"]
    for name, queue in ours["queues"].items():
        assert both["queues"][name]["entries"][: queue["max"]] == queue["entries"], name
    check_same(seen_by_ours(folder, settings), both)
    store = store_plan.opened(folder, settings, lambda: 1_900_000_000_000)
    last = both["queues"]["A@0"]["max"]
    assert store_plan.put_all(store, plan[:1]) == [(both["max"], last)]
    store.close()
    for name, queue in both["queues"].items():
        offsets = [each["offset"] for each in both["messages"] if _is_of(each, name)]
        assert offsets == list(range(queue["max"])), name


def _is_of(message: dict[str, Any], name: str) -> bool:
    """Whether a message has an entry in this queue: neither prepared nor rolled back."""
    return f"{message['topic']}@{message['queue']}" == name and message["sysFlag"] & 0xC in (0, 8)


def test_java_reads_the_same_in_a_store_whose_old_files_were_deleted(
    judge: Judge, tmp_path: Path
) -> None:
    plan, keys = store_plan.make_plan(tmp_path / "scratch", SIZES)
    settings: dict[str, Any] = SIZES | {"plan": [], "keys": keys}
    clock = iter(range(1_700_000_000_000, 1 << 62, 3))
    store = store_plan.opened(tmp_path / "store", settings, lambda: next(clock))
    store_plan.put_all(store, plan + plan[30:])
    store_plan.sync(store)
    for path in sorted((tmp_path / "store" / "commitlog").iterdir())[:8]:
        os.utime(path, (0, 0))
    before = len(files_of(tmp_path / "store" / "consumequeue"))
    for step in store.cleaner.clean(by_hand=True):
        if step.work is not None:
            step.work()
    ours = store_plan.report(store, keys)
    store.close()
    assert ours["min"] == 8 * store_plan.LOG_FILE_BYTES
    assert ours["queues"]["C@0"]["min"] > 16
    # This queue is empty, but keeps its offsets.
    assert ours["queues"]["B@0"]["min"] == ours["queues"]["B@0"]["max"] > 0
    assert len(files_of(tmp_path / "store" / "consumequeue")) < before - 2
    check_same(judge(tmp_path / "store", settings), ours)
    check_same(seen_by_ours(tmp_path / "store", settings), ours)
    # Rebuilt queues start above 0, with fillers up to their first message.
    made: list[dict[str, bytes]] = []
    for name in ("by-ours", "by-java"):
        copy = tmp_path / name
        shutil.copytree(tmp_path / "store", copy)
        shutil.rmtree(copy / "consumequeue")
        report = seen_by_ours(copy, settings) if name == "by-ours" else judge(copy, settings)
        assert report["queues"]["C@0"] == ours["queues"]["C@0"]
        made.append(files_of(copy / "consumequeue"))
    assert made[0] == made[1]
    assert any(data.startswith(bytes(8) + b"\x7f\xff\xff\xff") for data in made[0].values())
