"""Docstrings, comments, documents and names use the terms of the field."""

from pathlib import Path

import pytest
from aerobee.scripts.dev import wording

from . import tree


def test_no_file_has_words_to_avoid() -> None:
    found = [
        f"{name}:{one.line}: {one.text!r}; write instead: {one.cure}"
        for name in wording.files()
        for one in wording.findings(tree.ROOT / name)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("code.py", '"""The client who asks."""\n', ["who"]),
        ("code.py", "whole = 'who is not prose'\n", []),
        ("code.py", "# A line that ends in so\n# many words.\n", ["so many"]),
        ("code.py", "# `who` is code.\n", []),
        ("code.py", "def join_crowd() -> None: ...\n", ["join_crowd"]),
        ("code.py", "class LaneFull: ...\n", ["LaneFull"]),
        ("code.py", "in_turn = airplane = 1\n", []),
        ("page.md", "Sent in the\nsame way, in turn. This turns on TLS.\n", []),
        ("page.md", "At the end of a turn.\n", ["a turn"]),
        ("page.md", "```\nwho\n```\n", []),
        ("keys.yaml", "# Whoever connects.\nwho: 1\n", ["Whoever"]),
    ],
)
def test_words_are_found_in_prose_and_in_names(
    name: str, text: str, found: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert [one.text for one in wording.findings(tmp_path / name)] == found


def test_a_finding_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text('"""One.\n\nTwo, anew."""\n\nnumber = 1  # whoever\n')
    lines = [one.line for one in wording.findings(tmp_path / "code.py")]
    assert lines == [3, 5]
