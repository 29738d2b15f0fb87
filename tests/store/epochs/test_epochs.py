"""The file of epochs: its changes, its refusals, and a power cut in between."""

from pathlib import Path
from random import Random

import pytest
from aerobee.store.base.errors import DamagedStore
from aerobee.store.epochs import END_MAX, Epochs
from aerobee.store.epochs.entries import EPOCHS_MAX, EpochEntry, encode
from aerobee.store.files import disk as disks

from ...loss.power import Image, PowerDisk
from ...loss.workload import on


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "epochFileCheckpoint"


def shown(epochs: Epochs) -> list[str]:
    return [str(entry) for entry in epochs.entries]


def filled(path: Path, *pairs: tuple[int, int]) -> Epochs:
    epochs = Epochs.open(path)
    for pair in pairs:
        epochs.append(*pair)
    return epochs


def test_epochs_are_kept_in_the_file_and_the_text_before_in_its_bak(path: Path) -> None:
    epochs = filled(path, (7, 7000))
    before = path.read_bytes()
    epochs.append(8, 8000)
    assert path.read_bytes() == b"2\n773307083\n7-7000\n8-8000\n"
    assert path.with_name(path.name + ".bak").read_bytes() == before
    again = Epochs.open(path)
    assert again.entries == epochs.entries
    assert again.last_epoch == 8


def test_a_new_store_has_no_epoch_and_no_file(path: Path) -> None:
    epochs = Epochs.open(path)
    assert (epochs.entries, epochs.last_epoch, epochs.epoch_at(0)) == ((), 0, None)
    assert not path.exists()


def test_the_epoch_of_a_byte_and_the_end_of_an_epoch(path: Path) -> None:
    epochs = filled(path, (1, 100), (3, 200))
    found = [epochs.epoch_at(at) for at in (99, 100, 199, 200, 9_000)]
    assert [entry and entry.epoch for entry in found] == [None, 1, 1, 3, 3]
    assert [epochs.end_of(number) for number in (1, 2, 3)] == [200, None, END_MAX]


# RocketMQ refuses such an epoch (upstream 9942, 9689): what the new master writes counts as the old
# one's, and two logs differ for ever. The order of events is that of its fault.
def test_fault_10_2_an_epoch_without_a_message_is_replaced_by_the_next(path: Path) -> None:
    epochs = filled(path, (1, 0), (2, 1000), (3, 1000))
    assert shown(epochs) == ["1-0", "3-1000"]
    assert shown(Epochs.open(path)) == ["1-0", "3-1000"]


def test_the_last_epoch_again_changes_nothing(path: Path) -> None:
    epochs = filled(path, (1, 0), (2, 1000))
    text = path.read_bytes()
    epochs.append(2, 1000)
    assert path.read_bytes() == text
    assert shown(epochs) == ["1-0", "2-1000"]


@pytest.mark.parametrize("pair", [(2, 1500), (1, 2000), (2, 900), (3, 900), (-1, 5), (1 << 31, 5)])
def test_an_epoch_that_does_not_follow_is_refused(path: Path, pair: tuple[int, int]) -> None:
    epochs = filled(path, (1, 0), (2, 1000))
    with pytest.raises(DamagedStore, match="delete the store folders of the others"):
        epochs.append(*pair)
    assert shown(epochs) == shown(Epochs.open(path)) == ["1-0", "2-1000"]


def test_a_cut_drops_the_epochs_that_begin_behind_it(path: Path) -> None:
    epochs = filled(path, (1, 0), (2, 1000), (3, 2000))
    epochs.cut(2001)
    assert len(epochs.entries) == 3
    epochs.cut(1000)
    assert shown(epochs) == shown(Epochs.open(path)) == ["1-0"]


def test_nothing_comes_back_after_all_epochs_were_cut(path: Path) -> None:
    epochs = filled(path, (1, 0), (2, 1000))
    epochs.cut(0)
    assert epochs.entries == Epochs.open(path).entries == ()
    assert list(path.parent.iterdir()) == []


def test_old_files_of_the_log_take_their_epochs_with_them_but_never_the_last(path: Path) -> None:
    epochs = filled(path, (1, 0), (2, 1000), (3, 2000))
    epochs.drop_before(1000)
    assert len(epochs.entries) == 3
    epochs.drop_before(1001)
    assert shown(epochs) == ["2-1000", "3-2000"]
    epochs.drop_before(9000)
    assert shown(epochs) == shown(Epochs.open(path)) == ["3-2000"]


def test_above_the_limit_the_oldest_goes(path: Path) -> None:
    path.write_bytes(encode([EpochEntry(n, n * 10) for n in range(1, EPOCHS_MAX + 1)]))
    epochs = Epochs.open(path)
    assert (len(epochs.entries), epochs.entries[0].epoch) == (EPOCHS_MAX, 1)
    epochs.append(EPOCHS_MAX + 1, (EPOCHS_MAX + 1) * 10)
    assert len(epochs.entries) == EPOCHS_MAX
    assert (epochs.entries[0].epoch, epochs.last_epoch) == (2, EPOCHS_MAX + 1)


@pytest.mark.parametrize(
    "text",
    [
        b"2\n773307083\n7-7000\n8-80",  # torn
        b"2\n773307083\n7-7000\n9-8000\n",  # flipped
        b'{"epochs": []}',  # of something else
        b"\0" * 30,
        b"",
    ],
)
@pytest.mark.parametrize("has_bak", [True, False])
def test_a_text_that_is_not_whole_is_refused_and_the_bak_is_not_taken_for_it(
    path: Path, text: bytes, has_bak: bool
) -> None:
    filled(path, (7, 7000), (8, 8000))
    if not has_bak:
        path.with_name(path.name + ".bak").unlink()
    path.write_bytes(text)
    with pytest.raises(DamagedStore, match=f"{path.name} has {len(text)} bytes") as refused:
        Epochs.open(path)
    assert "restore it from a copy" in str(refused.value)


def test_a_missing_file_with_a_bak_is_refused(path: Path) -> None:
    filled(path, (7, 7000), (8, 8000))
    path.unlink()
    with pytest.raises(DamagedStore, match="has 0 bytes"):
        Epochs.open(path)


def test_a_power_cut_leaves_the_old_epochs_or_the_new_ones() -> None:
    """At each change of the disk, with any part of what was not synced."""
    path = Path("/s/epochFileCheckpoint")
    draw = Random(1)
    disk = PowerDisk()
    images: list[Image] = []
    with on(disk):
        disks.current.make_folders(path.parent)
        epochs = filled(path, (1, 0), (2, 1000))
        disk.on_step = lambda: images.extend(disk.cut().images(20, draw))
        epochs.append(3, 2000)
        epochs.cut(1000)
        epochs.cut(0)
        disk.on_step = None
    met = set()
    for image in images:
        with on(PowerDisk(image)):
            met.add(tuple(shown(Epochs.open(path))))
    steps = [("1-0", "2-1000"), ("1-0", "2-1000", "3-2000"), ("1-0",), ()]
    assert met <= set(steps)
    assert len(met) >= 3
