"""Names and form: every file has a subject and says what it holds; the build knows all folders."""

import ast
import re
import tomllib

import pytest

from . import tree

SUBJECTLESS = {"utils", "util", "common", "helpers", "helper", "misc"}
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")
# A path of this tree in a text: in backquotes, with a known folder before the first slash.
MENTIONED = re.compile(rf"`((?:{'|'.join(tree.FOLDERS)}|tests)/[\w./-]+?)/?`")


def test_every_file_has_a_subject_in_its_name() -> None:
    wrong = [
        str(path)
        for path in (*tree.sources(), *(tree.ROOT / "tests").rglob("*.py"))
        if path.stem in SUBJECTLESS
    ]
    assert not wrong, f"name these after the noun that their functions serve: {wrong}"


def test_every_file_opens_with_what_it_holds() -> None:
    wrong = [str(path) for path in tree.sources() if ast.get_docstring(tree.parsed(path)) is None]
    assert not wrong, f"these begin without a docstring: {wrong}"


def test_the_build_lists_exactly_the_packages_that_exist() -> None:
    setuptools = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = {name.replace(".", "/") for name in setuptools["packages"]}
    left_out = {f"aerobee/scripts/{room}" for room in ("benchmark", "loads", "harness", "dev")}
    guests = {guest.rpartition("/")[2] for guest in tree.GUESTS}
    there = {"aerobee"} | {
        f"aerobee/{path.parent}"
        for path in tree.sources()
        if path.name == "__init__.py" and path.parent.name and str(path.parent) not in tree.GUESTS
    }
    assert listed - guests == there - left_out


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_names_exist(document: str) -> None:
    text = (tree.ROOT / document).read_text()
    named = set(MENTIONED.findall(text))
    missing = [name for name in sorted(named) if not (tree.ROOT / name).exists()]
    assert not missing, f"{document} speaks of files that are not there: {missing}"
