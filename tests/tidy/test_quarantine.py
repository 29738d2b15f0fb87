"""Unstable tests leave the gate by the marker `quarantine`, for an issue and until a date."""

import ast
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

from . import tree

QUARANTINED_MAX = 10


def quarantines(source: str) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """The line, the values and the named values of each marker."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.quarantine":
            values = [ast.literal_eval(each) for each in node.args]
            named = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
            yield node.lineno, values, named


def fault(values: list[str], named: dict[str, str], today: date) -> str:
    """What is wrong with a marker, or nothing."""
    if len(values) != 1 or not values[0].startswith("#") or named.keys() != {"until"}:
        return 'write @pytest.mark.quarantine("#ISSUE", until="YYYY-MM-DD")'
    if date.fromisoformat(named["until"]) < today:
        return f"its quarantine ended on {named['until']}: mend or delete the test ({values[0]})"
    return ""


def test_a_quarantine_has_an_issue_and_has_not_ended() -> None:
    today = datetime.now(UTC).date()
    found = [
        (f"{path.relative_to(tree.ROOT)}:{line}", fault(values, named, today))
        for path in sorted((tree.ROOT / "tests").rglob("*.py"))
        for line, values, named in quarantines(path.read_text())
    ]
    assert len(found) <= QUARANTINED_MAX
    assert [each for each in found if each[1]] == []


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('("#12", until="2026-12-31")', ""),
        ('("#12", until="2026-12-30")', "its quarantine ended on 2026-12-30"),
        ('(until="2026-12-31")', "write"),
        ('("#12")', "write"),
        ('("soon", until="2026-12-31")', "write"),
    ],
)
def test_a_quarantine_that_has_ended_or_lacks_something_is_found(marker: str, said: str) -> None:
    source = f"@pytest.mark.quarantine{marker}\ndef test_one(): ...\n"
    [(_, values, named)] = quarantines(source)
    assert fault(values, named, date(2026, 12, 31)).startswith(said)
    assert bool(fault(values, named, date(2026, 12, 31))) is bool(said)
