"""Secrets in settings: texts and files, and the refusals, which never contain the secret."""

from pathlib import Path

import pytest
from aerobee.conf.secret import CHARS_MAX, CHARS_MIN, secret_of
from aerobee.conf.sources import ConfigError

TOKEN = "0123456789abcdef"


def file_with(folder: Path, data: bytes, mode: int = 0o600) -> str:
    path = folder / "token"
    path.write_bytes(data)
    path.chmod(mode)
    return f"file:{path}"


def test_an_empty_setting_is_no_secret() -> None:
    assert secret_of("httpToken", "") == b""


def test_a_text_is_the_secret() -> None:
    assert secret_of("httpToken", TOKEN) == TOKEN.encode()


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_file_holds_the_secret_without_the_end_of_its_line(tmp_path: Path, mode: int) -> None:
    given = file_with(tmp_path, f"{TOKEN}\n".encode(), mode)
    assert secret_of("httpToken", given) == TOKEN.encode()


def test_the_longest_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    given = file_with(tmp_path, b"x" * CHARS_MAX + b"\r\n")
    assert len(secret_of("httpToken", given)) == CHARS_MAX


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    given = file_with(tmp_path, TOKEN.encode(), mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*0640.*chmod 600") as refused:
        secret_of("httpToken", given)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 characters"),
        (b"x" * (CHARS_MIN - 1), f"{CHARS_MIN - 1} characters"),
        (b"x" * (CHARS_MAX + 1), f"{CHARS_MAX + 1} characters"),
        (b"two words in the file", "spaces"),
        (b"\xff" * 20, "not ASCII"),
    ],
)
def test_other_contents_are_refused_without_showing_them(
    tmp_path: Path, data: bytes, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        secret_of("httpToken", file_with(tmp_path, data))
    assert not data or data.decode("latin-1") not in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        secret_of("httpToken", f"file:{tmp_path / 'gone'}")
    with pytest.raises(ConfigError, match="no plain file"):
        secret_of("httpToken", f"file:{tmp_path}")
