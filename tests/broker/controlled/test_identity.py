"""The identity files: their text, the order of their writes, and what is refused."""

from pathlib import Path

import pytest
from aerobee.broker.controlled.identity import Identity, IdentityFiles, parse
from aerobee.store.base.errors import DamagedStore, StoreError

APPLICATION = Identity("c", "broker-a", 3, "127.0.0.1:10911;1700000000000")


def files(folder: Path, cluster: str = "c", name: str = "broker-a") -> IdentityFiles:
    return IdentityFiles(folder, cluster, name)


def test_the_lines_are_those_of_rocketmq(tmp_path: Path) -> None:
    assert APPLICATION.to_text() == "c#broker-a#3#127.0.0.1:10911;1700000000000"
    assert parse(APPLICATION.to_text(), with_code=True) == APPLICATION
    (tmp_path / "brokerIdentity").write_text("c#broker-a#2")
    assert files(tmp_path).load() == Identity("c", "broker-a", 2)


def test_an_accepted_application_becomes_the_identity(tmp_path: Path) -> None:
    store = tmp_path / "new" / "store"
    assert files(store).load() is None
    assert files(store).load_application() is None
    files(store).save_application(APPLICATION)
    assert files(store).load_application() == APPLICATION  # the answer was lost: asked again
    assert files(store).load() is None
    identity = files(store).accept(APPLICATION)
    assert identity == files(store).load() == Identity("c", "broker-a", 3)
    assert [path.name for path in store.iterdir()] == ["brokerIdentity"]


def test_a_refused_application_is_forgotten(tmp_path: Path) -> None:
    files(tmp_path).save_application(APPLICATION)
    files(tmp_path).drop_application()
    files(tmp_path).drop_application()
    assert files(tmp_path).load_application() is None


@pytest.mark.parametrize(
    "text", ["", "c#broker-a", "c#broker-a#0", "c#broker-a#x", "c##1", "\xff\xfe"]
)
def test_a_damaged_file_stops_the_start(text: str, tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_bytes(text.encode("latin-1"))
    with pytest.raises(DamagedStore, match="brokerIdentity can't be read"):
        files(tmp_path).load()


@pytest.mark.parametrize(
    ("cluster", "name", "key"), [("d", "broker-a", "brokerClusterName"), ("c", "b", "brokerName")]
)
def test_the_identity_of_another_broker_stops_the_start(
    cluster: str, name: str, key: str, tmp_path: Path
) -> None:
    files(tmp_path).accept(APPLICATION)
    with pytest.raises(StoreError, match=f"belongs to {key}="):
        files(tmp_path, cluster, name).load()
