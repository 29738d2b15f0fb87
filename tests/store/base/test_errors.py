"""What the system says becomes one sentence with what to do."""

import errno
from pathlib import Path

import pytest
from aerobee.store.base.errors import DiskFull, NotWritable, Shortage, StoreError, readable_errors


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (errno.ENOSPC, DiskFull, "free some space"),
        (errno.EDQUOT, DiskFull, "free some space"),
        (errno.EFBIG, DiskFull, "free some space"),
        (errno.EACCES, NotWritable, "storePathRootDir"),
        (errno.EROFS, NotWritable, "storePathRootDir"),
        (errno.EMFILE, Shortage, "ulimit -n"),
        (errno.ENFILE, Shortage, "fs.file-max"),
        (errno.ENOMEM, Shortage, "vm.max_map_count"),
        (errno.EAGAIN, Shortage, "tried again"),
        (errno.EIO, StoreError, "Input/output error"),
    ],
)
def test_an_error_of_the_system_names_the_file_and_what_to_do(
    number: int, kind: type[StoreError], advice: str
) -> None:
    with (
        pytest.raises(kind, match=r"open /data/store/lock") as raised,
        readable_errors(Path("/data/store/lock"), "open"),
    ):
        raise OSError(number, "whatever")
    assert type(raised.value) is kind
    assert advice in str(raised.value)
    assert "\n" not in str(raised.value)
