"""`aerobee backup` and `aerobee restore` as a user runs them, beside a broker that goes on."""

import json
import tarfile
from pathlib import Path

import pytest

from ..command import FREE_PORTS, SMALL, aerobee, output, refused, running

GOLDEN = Path(__file__).parents[2] / "golden" / "stores"


def lines_of(topic: str, namesrv: str, count: int) -> list[str]:
    out = output("sub", topic, "-n", namesrv, "--from", "earliest", "--count", str(count))
    return sorted(out.split())


@pytest.mark.requirement(
    "Store: `aerobee backup` of a running broker, whole and incremental, and `aerobee restore`"
)
def test_a_running_broker_is_backed_up_by_name_and_its_restored_store_serves(
    tmp_path: Path,
) -> None:
    target, restored = str(tmp_path / "target"), tmp_path / "restored"
    first = "".join(f"{number:05}\n" for number in range(2000))
    with running(
        tmp_path / "up", "up", *FREE_PORTS, *SMALL, "--store", str(tmp_path / "store")
    ) as one:
        output("topics", "create", "orders", "-n", one.namesrv)
        output("pub", "orders", "-n", one.namesrv, data=first)
        name = json.loads(output("cluster", "-n", one.namesrv, "--json"))["broker"]
        begun = output("backup", name, target, "-n", one.namesrv).splitlines()
        assert begun[0].startswith(f"{target}/backups/")
        output("pub", "orders", "-n", one.namesrv, data="later\n")
        again = json.loads(output("backup", one.broker, target, "-n", one.namesrv, "--json"))
        assert again["new_bytes"] < again["data_bytes"]
    assert len(output("restore", target, "--list").splitlines()) == 3
    assert " is whole: " in output("restore", target, "--check")
    assert output("restore", target, str(restored)).startswith("restored ")
    assert "no damage found" in output("store", "check", str(restored))
    with running(tmp_path / "up", "up", *FREE_PORTS, *SMALL, "--store", str(restored)) as two:
        assert lines_of("orders", two.namesrv, 2001) == sorted([*first.split(), "later"])


def test_a_store_of_a_java_broker_is_backed_up_and_restored(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "broker.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    store, target, restored = (str(tmp_path / each) for each in ("broker", "target", "restored"))
    output("backup", store, target, "--rate", "1GiB/s", "--keep", "1")
    output("backup", store, target, "--keep", "1")
    assert len(output("restore", target, "--list").splitlines()) == 2
    output("restore", target, restored)
    lines = output("store", "check", restored).splitlines()
    assert lines[-1] == "no damage found"
    assert any(line.split()[:4] == ["commit", "log", "1", "56"] for line in lines)
    assert output("store", "dump", restored, "-n", "60") == output(
        "store", "dump", store, "-n", "60"
    )


def test_what_was_asked_wrongly_is_said(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    assert "is no store" in refused("backup", f"{tmp_path}/nothing", target)
    (tmp_path / "commitlog").mkdir()
    assert "give bytes a second, such as 50MiB" in refused(
        "backup", str(tmp_path), target, "--rate", "fast"
    )
    assert "restore where?" in refused("restore", target)
    assert "--until tomorrow" in refused("restore", target, "x", "--until", "tomorrow")
    for words in ([str(tmp_path / "restored")], ["--list"], ["--check"]):
        assert f"{target} has no backup: it does not exist; give the TARGET" in refused(
            "restore", target, *words
        )
    assert aerobee("backup", str(tmp_path), target, "--keep", "0").returncode == 2
    (tmp_path / "file").touch()
    said = refused("backup", str(tmp_path), f"{tmp_path}/file")
    assert f"can't make {tmp_path}/file/backups: a part of this path is a file" in said


def test_an_unknown_broker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with running(tmp_path / "n", "namesrv", "--listen-port", "0", "--set", "httpPort=0") as one:
        said = refused("backup", "nobody", str(tmp_path / "target"), "-n", one.namesrv)
        assert "nobody is no folder and no broker; the name server knows none" in said
