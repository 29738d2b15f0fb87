"""A journal beside a JSON file: what is appended is there after a crash, what is torn is not."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.codec.fastjson import parse
from aerobee.store.base.errors import DiskFull, StoreError
from aerobee.store.files import disk, json_journal
from aerobee.store.files.json_journal import JsonJournal


def journal_in(folder: Path) -> JsonJournal:
    return JsonJournal(folder / "config" / "topics.json")


def lines(folder: Path) -> list[Any]:
    return journal_in(folder).load(parse)


def test_what_was_appended_is_read_in_its_order(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    assert journal.load(parse) == []
    assert journal.end == 0
    journal.append(b'{"a":1}\n{"b":2}\n')
    journal.append(b'{"c":3}\n')
    assert lines(tmp_path) == [{"a": 1}, {"b": 2}, {"c": 3}]
    again = journal_in(tmp_path)
    again.load(parse)
    again.append(b'{"d":4}\n')
    assert lines(tmp_path) == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]
    journal.close()
    again.close()


@pytest.mark.parametrize("torn", [b"{", b'{"b":2}', b"\0" * 9, b'{"b":\0\0}\n', b'"\n{"c":3}\n'])
def test_a_torn_line_and_what_follows_is_none_and_is_written_over(
    tmp_path: Path, torn: bytes
) -> None:
    journal = journal_in(tmp_path)
    journal.append(b'{"a":1}\n')
    journal.close()
    with journal.path.open("ab") as file:
        file.write(torn)
    again = journal_in(tmp_path)
    assert again.load(parse) == [{"a": 1}]
    again.append(b'{"long enough to cover what was torn":3}\n')
    again.close()
    assert lines(tmp_path)[:2] == [{"a": 1}, {"long enough to cover what was torn": 3}]


def test_a_line_that_the_disk_refuses_was_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(disk.Disk):
        fails = True

        def pwrite(self, fd: int, data: Any, at: int) -> int:
            if self.fails:
                os.pwrite(fd, data[:20], at)
                raise OSError(errno.ENOSPC, "no room")
            return os.pwrite(fd, data, at)

    journal = journal_in(tmp_path)
    journal.append(b'{"a":1}\n')
    full = Full()
    monkeypatch.setattr(disk, "current", full)
    with pytest.raises(DiskFull, match=r"topics\.json\.journal"):
        journal.append(b'{"a long line of which only a part gets there":2}\n')
    full.fails = False
    assert lines(tmp_path) == [{"a": 1}]
    journal.append(b'{"b":2}\n')
    journal.close()
    assert lines(tmp_path) == [{"a": 1}, {"b": 2}]


def test_what_the_file_has_by_now_is_forgotten_and_the_rest_is_kept(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.append(b'{"base":0}\n{"a":1}\n')
    mark = journal.end
    journal.append(b'{"b":2}\n')
    journal.forget(mark, b'{"base":1}\n')
    assert lines(tmp_path) == [{"base": 1}, {"b": 2}]
    journal.append(b'{"c":3}\n')
    assert lines(tmp_path) == [{"base": 1}, {"b": 2}, {"c": 3}]
    journal.forget(journal.end, b'{"base":3}\n')
    assert not journal.path.exists()
    journal.append(b'{"d":4}\n')
    assert lines(tmp_path) == [{"d": 4}]
    journal.close()


def test_a_journal_does_not_grow_beyond_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_journal, "JOURNAL_BYTES_MAX", 20)
    journal = journal_in(tmp_path)
    journal.append(b'{"a":1}\n')
    with pytest.raises(StoreError, match=r"8 bytes, 16 more would be over the limit of 20"):
        journal.append(b'{"b":2}\n{"c":3}\n')
    journal.close()
    assert lines(tmp_path) == [{"a": 1}]
