"""What groups have consumed, on its way to the file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.broker.groups import offsets as module
from aerobee.broker.groups.offsets import Offsets

from ...clocks import Clock


@pytest.fixture
def offsets(tmp_path: Path, clock: Clock) -> Offsets:
    return Offsets(tmp_path / "consumerOffset.json", clock)


def fill(offsets: Offsets, groups: int, queues: int = 3) -> None:
    for group in range(groups):
        for queue in range(queues):
            offsets.commit("Größe", f"group{group:03}", queue, group * 100 + queue)


def piece_by_piece(offsets: Offsets) -> Iterator[bytes]:
    offsets.changed = True
    return offsets.pieces()


@pytest.mark.parametrize("groups", [0, 1, 2, 7, 50])
@pytest.mark.parametrize("most", [1, 5, 1_000])
def test_the_pieces_are_the_text_of_the_whole_table(
    offsets: Offsets, monkeypatch: pytest.MonkeyPatch, groups: int, most: int
) -> None:
    monkeypatch.setattr(module, "OFFSETS_PER_PIECE", most)
    fill(offsets, groups)
    pieces = list(piece_by_piece(offsets))
    assert b"".join(pieces) == offsets.to_body().encode(standard=True)
    assert len(pieces) >= min(groups, groups * 4 // (most + 4)) + 2


def test_what_changes_between_two_pieces_leaves_a_whole_text_and_is_written_next_time(
    offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OFFSETS_PER_PIECE", 5)
    fill(offsets, 10)
    pieces = piece_by_piece(offsets)
    text = next(pieces) + next(pieces)
    offsets.delete_group("group007")
    offsets.commit("Größe", "another", 0, 9)
    offsets.commit("Größe", "group008", 0, 12_345)
    text += b"".join(pieces)
    offsets.path.write_bytes(text)
    read = Offsets(offsets.path, offsets._now_ms)
    read.load()
    assert read.groups_of("Größe") == [f"group{n:03}" for n in (0, 1, 2, 3, 4, 5, 6, 8, 9)]
    assert offsets.changed
    offsets.save()
    read.load()
    assert read.get("Größe", "another", 0) == 9


def test_nothing_is_written_when_nothing_changed(offsets: Offsets) -> None:
    fill(offsets, 1)
    offsets.save()
    assert list(offsets.pieces()) == []
    assert offsets.unsaved() is None
