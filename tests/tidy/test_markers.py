"""Requirements and findings are marked on tests, where pytest and the documents find them."""

import ast
from collections.abc import Iterator

import pytest

from . import tree

MARKERS = ("requirement", "finding")


def misplaced(source: str, *, is_test_file: bool = True) -> Iterator[tuple[int, str]]:
    """The line and the text of each marker that isn't a decorator of a test function."""
    parsed = ast.parse(source)
    on_tests = {
        inner
        for node in parsed.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and is_test_file
        for decorator in node.decorator_list
        for inner in ast.walk(decorator)
    }
    for node in ast.walk(parsed):
        if isinstance(node, ast.Attribute) and node not in on_tests:
            text = ast.unparse(node)
            if text in [f"pytest.mark.{name}" for name in MARKERS]:
                yield node.lineno, text


def test_markers_are_on_tests() -> None:
    wrong = [
        f"{path.relative_to(tree.ROOT)}:{line}: put {text} on a function test_… of a file test_….py"
        for path in sorted((tree.ROOT / "tests").rglob("*.py"))
        for line, text in misplaced(path.read_text(), is_test_file=path.name.startswith("test_"))
    ]
    assert not wrong, "\n".join(wrong)


MARKED = '@pytest.mark.requirement("Store: one")\n'


@pytest.mark.parametrize(
    ("code", "is_right"),
    [
        (MARKED + "def test_one(): ...", True),
        (MARKED + "async def test_one(): ...", True),
        (MARKED + "def helper(): ...", False),
        (MARKED + "class Clock: ...", False),
        (MARKED + "class TestClock: ...", False),
        ('pytestmark = pytest.mark.finding("S1")', False),
        (f"def test_one():\n    {MARKED}    def test_inner(): ...", False),
    ],
)
def test_a_marker_that_is_not_on_a_test_is_found(code: str, is_right: bool) -> None:
    assert (list(misplaced(code)) == []) is is_right


def test_a_marker_in_a_file_of_helpers_is_found() -> None:
    assert list(misplaced(MARKED + "def test_one(): ...", is_test_file=False))
