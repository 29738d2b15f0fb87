"""The file of a redrive: what it keeps, a torn line, its limit."""

import json
import os
from pathlib import Path

import pytest
from aerobee.console.actions import ledger as module
from aerobee.console.actions.ledger import SENDING, SENT, Ledger, LedgerFull


def test_a_torn_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    one = Ledger(tmp_path / "new", "main", "../g", "x")
    assert one.path.parent == tmp_path / "new"  # no name becomes a path
    one.open()
    one.write("A", SENDING)
    one.write("A", SENT, topic="t")
    one.close()
    with one.path.open("ab") as file:
        file.write(b'{"letter": "B", "sta')
    again = Ledger(tmp_path / "new", "main", "../g", "x")
    again.read()
    assert again.states == {"A": SENT}
    again.open()
    again.write("C", SENDING)
    again.close()
    again.read()
    assert again.states == {"A": SENT, "C": SENDING}
    lines = again.path.read_text().splitlines()
    assert json.loads(lines[0])["group"] == "../g"
    assert os.stat(again.path).st_mode & 0o077 == 0


def test_another_target_has_another_file(tmp_path: Path) -> None:
    paths = {Ledger(tmp_path, "main", "g", target).path for target in ("a", "b")}
    assert len(paths) == 2


def test_a_full_file_is_refused_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 10)
    one = Ledger(tmp_path, "main", "g", "x")
    one.open()
    one.close()
    with pytest.raises(LedgerFull, match="the limit is 10; move it away"):
        one.open()
