"""Passwords: only a hash is kept, and a wrong one takes the time of a right one."""

from base64 import b64encode

import pytest
from aerobee.console.access import passwords
from aerobee.console.access.passwords import PasswordHash, hash_password, is_right

SALT = b64encode(bytes(32)).decode()


def test_a_password_is_right_only_as_it_was_set() -> None:
    kept = hash_password("correct horse")
    again = PasswordHash.parse(kept.text())
    assert again == kept
    assert is_right("correct horse", again)
    for wrong in ("correct hors", "correct horse ", "correct horse\0", "", "x" * 1_024):
        assert not is_right(wrong, again)
    assert "correct" not in kept.text()
    assert hash_password("correct horse").hash != kept.hash
    assert "b'" not in repr(kept)


def test_nobody_has_the_same_work_done_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    real = passwords._hash

    def hashed(password: str, cost: int, block: int, times: int, salt: bytes) -> bytes:
        asked.append((cost, block, times))
        return real(password, cost, block, times, salt)

    kept = hash_password("correct horse")
    monkeypatch.setattr(passwords, "_hash", hashed)
    assert not is_right("correct horse", None)
    assert is_right("correct horse", kept)
    assert asked[0] == asked[1]


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1_025])
def test_a_password_of_another_length_is_refused(password: str) -> None:
    with pytest.raises(ValueError, match="give 8 to 1024"):
        hash_password(password)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        f"md5$32768$8$1${SALT}${SALT}",
        f"scrypt$32767$8$1${SALT}${SALT}",
        f"scrypt$1073741824$8$1${SALT}${SALT}",
        f"scrypt$32768$8000$1${SALT}${SALT}",
        f"scrypt$32768$8$1000${SALT}${SALT}",
        f"scrypt$32768$8$1${SALT}$",
        f"scrypt$32768$8$1${SALT}$!",
        f"scrypt$32768$8$1${SALT}",
    ],
)
def test_a_hash_that_is_none_or_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="set it again"):
        PasswordHash.parse(text)
