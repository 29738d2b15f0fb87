"""Names and form: every file has a subject; the build knows all folders."""

import re
import tomllib

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


def test_the_build_lists_exactly_the_packages_that_exist() -> None:
    setuptools = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = {name.replace(".", "/") for name in setuptools["packages"]}
    left_out = {f"aerobee/scripts/{room}" for room in ("benchmark", "loads", "harness")} | {
        "aerobee/tools"
    }
    guests = {guest.rpartition("/")[2] for guest in tree.GUESTS}
    there = {"aerobee"} | {
        f"aerobee/{path.parent}"
        for path in tree.sources()
        if path.name == "__init__.py" and path.parent.name and str(path.parent) not in tree.GUESTS
    }
    assert listed - guests == there - left_out


def test_files_that_a_document_names_exist() -> None:
    missing = [
        f"{document}: {name}"
        for document in DOCUMENTS
        for name in sorted(set(MENTIONED.findall((tree.ROOT / document).read_text())))
        if not (tree.ROOT / name).exists()
    ]
    assert missing == []
