"""`aerobee backup` and `aerobee restore` as a user runs them, beside a broker that goes on."""

import json
import tarfile
from pathlib import Path

from ..command import Inside, output, refused, running, up

GOLDEN = Path(__file__).parents[2] / "golden" / "stores"


def lines_of(inside: Inside, topic: str, namesrv: str, count: int) -> list[str]:
    out = inside.read(topic, "-n", namesrv, "--from", "earliest", "--count", str(count))
    return sorted(out.split())


def test_a_running_broker_is_backed_up_by_name_and_its_restored_store_serves(
    inside: Inside, tmp_path: Path
) -> None:
    target, restored = str(tmp_path / "target"), tmp_path / "restored"
    first = "".join(f"{number:05}\n" for number in range(2000))
    with running(tmp_path / "up", *up(tmp_path / "store")) as one:
        inside.output("topics", "create", "orders", "-n", one.namesrv)
        output("pub", "orders", "-n", one.namesrv, data=first)
        name = json.loads(inside.output("cluster", "-n", one.namesrv, "--json"))["broker"]
        begun = inside.output("backup", name, target, "-n", one.namesrv).splitlines()
        assert begun[0].startswith(f"{target}/backups/")
        output("pub", "orders", "-n", one.namesrv, data="later\n")
        again = json.loads(inside.output("backup", one.broker, target, "-n", one.namesrv, "--json"))
        assert again["new_bytes"] < again["data_bytes"]
    assert len(inside.output("restore", target, "--list").splitlines()) == 3
    assert " is whole: " in inside.output("restore", target, "--check")
    assert inside.output("restore", target, str(restored)).startswith("restored ")
    assert "no damage found" in inside.output("store", "check", str(restored))
    with running(tmp_path / "up", *up(restored)) as two:
        assert lines_of(inside, "orders", two.namesrv, 2001) == sorted([*first.split(), "later"])


def test_a_store_of_a_java_broker_is_backed_up_and_restored(inside: Inside, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "broker.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    store, target, restored = (str(tmp_path / each) for each in ("broker", "target", "restored"))
    inside.output("backup", store, target, "--rate", "1GiB/s", "--keep", "1")
    inside.output("backup", store, target, "--keep", "1")
    assert len(inside.output("restore", target, "--list").splitlines()) == 2
    inside.output("restore", target, restored)
    lines = inside.output("store", "check", restored).splitlines()
    assert lines[-1] == "no damage found"
    assert any(line.split()[:4] == ["commit", "log", "1", "56"] for line in lines)
    assert inside.output("store", "dump", restored, "-n", "60") == inside.output(
        "store", "dump", store, "-n", "60"
    )


def test_what_was_asked_wrongly_is_said(inside: Inside, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    assert "is no store" in inside.refused("backup", f"{tmp_path}/nothing", target)
    (tmp_path / "commitlog").mkdir()
    assert "give bytes a second, such as 50MiB" in inside.refused(
        "backup", str(tmp_path), target, "--rate", "fast"
    )
    assert "restore where?" in inside.refused("restore", target)
    assert "--until tomorrow" in inside.refused("restore", target, "x", "--until", "tomorrow")
    for words in ([str(tmp_path / "restored")], ["--list"], ["--check"]):
        assert f"{target} has no backup: it does not exist; give the TARGET" in inside.refused(
            "restore", target, *words
        )
    assert inside.done("backup", str(tmp_path), target, "--keep", "0").returncode == 2
    (tmp_path / "file").touch()
    said = inside.refused("backup", str(tmp_path), f"{tmp_path}/file")
    assert f"can't make {tmp_path}/file/backups: a part of this path is a file" in said


def test_an_unknown_broker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with running(tmp_path / "n", "namesrv", "--listen-port", "0", "--set", "httpPort=0") as one:
        said = refused("backup", "nobody", str(tmp_path / "target"), "-n", one.namesrv)
        assert "nobody is no folder and no broker; the name server knows none" in said
