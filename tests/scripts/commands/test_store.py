"""`aerobee store`: check, dump and rebuild as a user runs them, also beside a running broker."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from ..command import Inside, output, running, up

GOLDEN = Path(__file__).parents[2] / "golden" / "stores"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The store of a whole Java broker."""
    with tarfile.open(GOLDEN / "broker.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "broker"


def spoil(root: Path) -> Path:
    path = next((root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[300 + 52] ^= 1
    path.write_bytes(data)
    return path


def test_a_clean_store_passes_with_a_table(inside: Inside, root: Path) -> None:
    lines = inside.output("store", "check", str(root)).splitlines()
    assert lines[0].split() == ["PART", "FILES", "CHECKED", "DAMAGED", "NOTES"]
    assert lines[1].split() == ["commit", "log", "1", "56", "messages", "0", "0"]
    assert lines[-1] == "no damage found"


def test_damage_is_one_line_with_file_and_place_and_exit_code_1(inside: Inside, root: Path) -> None:
    path = spoil(root)
    done = inside.done("store", "check", str(root))
    assert (done.returncode, done.stderr) == (1, "")
    found = [line for line in done.stdout.splitlines() if line.startswith("damage: ")]
    assert found[0].startswith(f"damage: {path}:260: the record at 260 of the log has a body")
    assert done.stdout.splitlines()[-1] == f"{len(found)} damaged"


def test_json_has_an_object_for_each_finding_and_one_for_all(inside: Inside, root: Path) -> None:
    path = spoil(root)
    done = inside.done("store", "check", str(root), "--json")
    assert done.returncode == 1
    *findings, whole = map(json.loads, done.stdout.splitlines())
    assert findings[0]["path"] == str(path)
    assert (findings[0]["part"], findings[0]["at"]) == ("commit log", 260)
    assert whole["damaged"] is True
    assert {part["name"]: part["checked"] for part in whole["parts"]}["commit log"] == 55


def test_sizes_may_be_given(inside: Inside, root: Path, tmp_path: Path) -> None:
    settings = tmp_path / "broker.conf"
    config = json.loads((GOLDEN / "broker.json").read_text())["config"]
    names = [
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
    ]
    settings.write_text("".join(f"{name}={config[name]}\n" for name in names))
    assert "no damage found" in inside.output("store", "check", str(root), "-c", str(settings))
    wrong = ["-c", str(settings), "--set", "maxIndexNum=99"]
    done = inside.done("store", "check", str(root), *wrong)
    assert done.returncode == 1
    assert "slots and 99 entries don't make" in done.stdout


def test_a_dump_shows_records_entries_and_the_rest(inside: Inside, root: Path) -> None:
    words = ["store", "dump", str(root)]
    lines = inside.output(
        *words, "--json", "--topic", "VecAuto", "--queue", "2", "-n", "2"
    ).splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["topic"], one["queue"], one["offset"]) for one in found] == [
        ("VecAuto", 2, 0),
        ("VecAuto", 2, 1),
    ]
    assert "topic=VecAuto" in inside.output(*words, "-n", "1")
    queue = inside.output(
        *words, "queue", "--topic", "VecAuto", "--queue", "2", "--json", "-n", "1"
    )
    assert json.loads(queue)["size"] == 260
    assert json.loads(inside.output(*words, "index", "-n", "1", "--json"))["count"] == 104
    assert "log_ms=" in inside.output(*words, "checkpoint")


def test_two_stores_are_compared(inside: Inside, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert inside.output("store", "diff", str(root), str(copy)) == "no difference found\n"
    spoil(copy)
    done = inside.done("store", "diff", str(root), str(copy))
    assert (done.returncode, done.stderr) == (1, "")
    assert f"commit log: the record at 260 of {copy} is not whole" in done.stdout
    done = inside.done("store", "diff", str(root), str(copy), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["differences"] >= 1
    assert "compare with what?" in inside.refused("store", "diff", str(root))


def test_a_rebuilt_store_is_clean(inside: Inside, root: Path) -> None:
    queue = next((root / "consumequeue" / "VecAuto" / "2").iterdir())
    before = queue.read_bytes()
    queue.write_bytes(bytes(len(before)))
    assert inside.done("store", "check", str(root)).returncode == 1
    done = inside.done("store", "rebuild", str(root))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "made 15 queues with 56 entries and an index of 103 keys from the log\n"
    assert queue.read_bytes() == before
    assert "no damage found" in inside.output("store", "check", str(root))


def test_a_store_in_use_is_checked_and_dumped_and_not_rebuilt(
    inside: Inside, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with running(tmp_path / "up", *up(store)) as one:
        output("pub", "live", "-n", one.namesrv, data="first\nsecond\n")
        said = inside.output("store", "check", str(store))
        assert "a broker runs here, or was not stopped cleanly" in said
        assert said.splitlines()[-1] == "no damage found"
        assert 'body="second"' in inside.output("store", "dump", str(store), "--topic", "live")
        assert "is already open by process" in inside.refused("store", "rebuild", str(store))
        output("pub", "live", "-n", one.namesrv, data="third\n")
        words = ["--namesrv", one.namesrv, "--from", "earliest", "-n", "3"]
        assert sorted(inside.read("live", *words).splitlines()) == ["first", "second", "third"]
    assert "no damage found" in inside.output("store", "check", str(store))


def test_what_can_not_be_done_is_one_sentence(inside: Inside, tmp_path: Path, root: Path) -> None:
    for action in ("check", "dump", "rebuild"):
        assert "is no store: it has no folder commitlog" in inside.refused(
            "store", action, str(tmp_path)
        )
    assert "which queue? write: aerobee store dump DIR queue" in inside.refused(
        "store", "dump", str(root), "queue"
    )
