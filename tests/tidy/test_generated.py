"""The parts of documents that are made from the code are current, and their makers are right."""

import pytest
from aerobee.scripts.dev import generated, requirements, rooms

from . import tree


@pytest.mark.parametrize(("document", "mark"), generated.PARTS)
def test_a_generated_part_is_current(document: str, mark: str) -> None:
    text = (tree.ROOT / document).read_text()
    made = generated.PARTS[document, mark]()
    assert generated.replaced(text, mark, made) == text, (
        f"{document} is behind; run: python -m aerobee.scripts.dev.generated --write"
    )


@pytest.mark.parametrize("name", generated.FILES)
def test_a_generated_file_is_current(name: str) -> None:
    assert (tree.ROOT / name).read_text() == generated.FILES[name](), (
        f"{name} is behind; run: python -m aerobee.scripts.dev.generated --write"
    )


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


def test_markers_are_found_with_their_tests() -> None:
    source = """
import pytest

@pytest.mark.requirement("Store: one")
@pytest.mark.requirement(
    "Store: t"
    "wo"
)
@pytest.mark.asyncio
async def test_both(): ...
"""
    found = list(requirements.markers(source))
    assert found == [("test_both", "Store: one"), ("test_both", "Store: two")]


def test_a_marker_may_have_several_texts() -> None:
    source = '@pytest.mark.finding("A1", "A2")\n@pytest.mark.slow\ndef test_it(): ...\n'
    found = list(requirements.markers(source, "finding"))
    assert found == [("test_it", "A1"), ("test_it", "A2")]
