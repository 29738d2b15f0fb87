"""Findings in CHANGELOG.md have tests that name them, by the marker `finding`."""

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from aerobee.scripts.dev import requirements

from . import tree

# Findings without a test, each with the reason.
UNTESTED = {
    "C10": "RocketMQ's broker behaves in the same way, so nothing was changed",
    "C11": "the fault is in rocketmq-flink and shows with RocketMQ's broker as well",
}
ENTRY = re.compile(r"^- \*\*([A-Z]\d+(?:(?:, |-)[A-Z]\d+)*)\*\* ", re.MULTILINE)


def named(text: str) -> Iterator[str]:
    """The numbers of the findings that a changelog names: "S10, W2" and "T1-T3" are several."""
    for entry in ENTRY.findall(text):
        for part in entry.split(", "):
            first, _, last = part.partition("-")
            for number in range(int(first[1:]), int((last or first)[1:]) + 1):
                yield f"{first[0]}{number}"


def marked() -> dict[str, list[str]]:
    """The tests of each finding."""
    found = defaultdict(list)
    for path in sorted((tree.ROOT / "tests").rglob("test_*.py")):
        for test, number in requirements.markers(path.read_text(), "finding"):
            found[number].append(f"{path.relative_to(tree.ROOT)}::{test}")
    return found


@pytest.fixture(scope="module")
def known() -> set[str]:
    return set(named((tree.ROOT / "CHANGELOG.md").read_text()))


def test_every_finding_of_the_changelog_has_a_test_that_names_it(known: set[str]) -> None:
    untested = known - marked().keys() - UNTESTED.keys()
    assert not untested, (
        f'mark a test that fails without the change, @pytest.mark.finding("…"): {sorted(untested)}'
    )


def test_a_finding_that_is_listed_as_untested_has_no_test(known: set[str]) -> None:
    assert UNTESTED.keys() <= known
    assert not UNTESTED.keys() & marked().keys()


def test_every_marker_names_a_finding_of_the_changelog(known: set[str]) -> None:
    unknown = {number: tests for number, tests in marked().items() if number not in known}
    assert not unknown, f"CHANGELOG.md has no such finding: {unknown}"


def test_lists_and_ranges_are_read() -> None:
    text = "- **A1** One.\n- **S10, W2** Two.\n- **T8-T10** Three.\n- **No** one, nor **A3**.\n"
    assert list(named(text)) == ["A1", "S10", "W2", "T8", "T9", "T10"]
