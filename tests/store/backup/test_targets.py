"""Targets: a folder, and places of fsspec, keep the same bytes under the same names."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aerobee.store.backup import taking
from aerobee.store.backup.restoring import restore
from aerobee.store.backup.targets import FolderTarget, RemoteTarget, Target, target_of
from aerobee.store.base.errors import StoreError

from ...clocks import Clock
from ...s3_server import s3_server
from ..conftest import OpenStore, put
from .test_taking import bodies

KINDS: list[Callable[[Path], str]] = [
    str,
    lambda path: f"file://{path}",
    lambda path: f"memory://{path.parent.name}/deep",
    lambda path: f"s3://bucket/{path.parent.name}",
]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A server that speaks S3 and has the bucket `bucket`; fsspec finds it by these variables."""
    folder = tmp_path_factory.mktemp("s3")
    with s3_server(folder) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", "any")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield


@pytest.fixture(params=KINDS, ids=["folder", "file", "memory", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    place: Callable[[Path], str] = request.param
    if place is KINDS[-1]:
        request.getfixturevalue("s3")
    return target_of(place(tmp_path / "target"))


def test_what_is_written_is_there_with_its_size_until_it_is_deleted(target: Target) -> None:
    assert target.sizes("pieces") == {}
    assert target.read("pieces/ab/abc") is None
    target.write("pieces/ab/abc", b"data")
    target.write("pieces/cd/cde", b"more data")
    target.write("other", b"")
    assert target.sizes("pieces") == {"pieces/ab/abc": 4, "pieces/cd/cde": 9}
    assert target.read("pieces/ab/abc") == b"data"
    target.write("pieces/ab/abc", b"new")
    assert target.read("pieces/ab/abc") == b"new"
    target.delete("pieces/ab/abc")
    assert target.sizes("pieces") == {"pieces/cd/cde": 9}
    assert target.place("other").endswith("/other")


def test_a_store_goes_there_and_back(
    target: Target, tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    put(store, body=b"there and back")
    store.write_staged()
    taking.take(store.root, target, version="0", now_ms=clock)
    restore(target, tmp_path / "restored")
    assert bodies(open_store(root=tmp_path / "restored")) == [b"there and back"]


def test_what_speaks_against_backups_in_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = [tmp_path, tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nothing"]
    lacks = [target_of(str(place)).lack() for place in places]
    assert lacks == ["", "it is no folder", "it does not exist", "it does not exist"]
    assert target_of("memory://x").lack() == ""


def test_a_url_picks_fsspec_and_a_path_a_folder(tmp_path: Path) -> None:
    assert isinstance(target_of(str(tmp_path)), FolderTarget)
    assert isinstance(target_of("memory://x"), RemoteTarget)


def test_a_kind_of_url_that_nobody_knows_is_named() -> None:
    with pytest.raises(StoreError, match=r"nonsense://x can't be reached: .*nonsense"):
        target_of("nonsense://x")


def test_files_of_a_backup_are_their_owners(tmp_path: Path) -> None:
    FolderTarget(tmp_path).write("pieces/ab/abc", b"secret")
    assert (tmp_path / "pieces/ab/abc").stat().st_mode & 0o777 == 0o600
