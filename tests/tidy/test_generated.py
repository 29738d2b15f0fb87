"""The parts of documents that are made from the code are current, and their makers are right."""

import pytest
from aerobee.tools import generated, rooms


def test_generated_parts_and_files_are_current() -> None:
    behind = sorted(str(path) for path in generated.behind())
    assert behind == [], "run: python -m aerobee.tools.generated --write"


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="served: begin"):
        generated.replaced("no marks here", "served", "table")


def test_every_room_says_what_it_is() -> None:
    silent = [room for room in rooms.rooms() if not rooms.subject(room)]
    assert not silent, f"the first line of __init__.py says what a room is: {silent}"


def test_arrows_that_follow_from_others_are_left_out_of_a_diagram() -> None:
    chain = {"top": {"middle", "bottom"}, "middle": {"bottom"}, "bottom": set[str]()}
    assert rooms.reduced(chain) == {"top": {"middle"}, "middle": {"bottom"}, "bottom": set()}


def test_a_circle_keeps_its_arrows() -> None:
    circle = {"a": {"b"}, "b": {"a"}}
    assert rooms.reduced(circle) == circle


def test_an_arrow_is_an_import_that_runs() -> None:
    drawn = rooms.folders_diagram()
    assert "  broker --> store\n" in drawn
    assert "broker --> protocol\n" not in drawn  # follows from broker --> store --> protocol
    assert "store --> broker" not in drawn
