"""A store has one broker: the error for a second one names the process that has the store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from aerobee.store.base.errors import StoreInUse
from aerobee.store.files.lock import StoreLock, write_abort

HOLDER = """
import sys
from pathlib import Path
from aerobee.store.files.lock import StoreLock, write_abort
root = Path(sys.argv[1])
StoreLock(root).acquire()
write_abort(root)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    first, second = StoreLock(tmp_path), StoreLock(tmp_path)
    first.acquire()
    with pytest.raises(StoreInUse, match="already open in this process"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_second_process_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        lock = StoreLock(tmp_path)
        with pytest.raises(StoreInUse, match=f"already open by process {holder.pid}; stop"):
            lock.acquire()
        holder.kill()
        holder.wait()
        lock.acquire()
        lock.release()


def test_the_lock_file_has_the_same_text_as_javas(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    lock.acquire()
    lock.release()
    assert (tmp_path / "lock").read_text() == "lock"


def test_abort_has_the_process_id(tmp_path: Path) -> None:
    write_abort(tmp_path)
    assert (tmp_path / "abort").read_text() == str(os.getpid())
