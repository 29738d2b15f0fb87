"""The command `aerobee console user`: users are added, listed, removed; passwords never shown."""

from pathlib import Path

import pytest
from aerobee.console.access.passwords import is_right
from aerobee.console.access.user_file import UserFile
from aerobee.scripts.console_users import default_users

from .command import Inside

USER = ("console", "user")
PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return default_users()


def test_a_user_is_added_listed_and_removed(file: Path, inside: Inside) -> None:
    words = ("add", "ann", "--right", "operator", "--topic", "orders*", "--topic", "pay")
    out = inside.output(*USER, *words, "--bodies", "masked", data=f"{PASSWORD}\n")
    assert out == f"user ann is operator in {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    user = UserFile(file).users()["ann"]
    assert is_right(PASSWORD, user.password)
    assert (user.topics, user.groups) == (("orders*", "pay"), ("*",))
    inside.output(*USER, "add", "bob", "--no-password")
    out = inside.output(*USER)
    rows = [line.split() for line in out.splitlines()]
    assert rows[1:] == [
        ["ann", "operator", "orders*,pay", "*", "masked", "set"],
        ["bob", "viewer", "*", "*", "shown", "none"],
    ]
    assert PASSWORD not in out + file.read_text()
    assert "open sessions end" in inside.output(*USER, "remove", "ann")
    assert list(UserFile(file).users()) == ["bob"]


@pytest.mark.parametrize(
    ("words", "typed", "says"),
    [
        (["add"], "", "which user? write: aerobee console user add NAME"),
        (["remove", "eve"], "", "there is no user eve in"),
        (["add", "ann"], "", "the password of ann is empty"),
        (["add", "ann"], "short\n", "the password has 5 characters; give 8 to 1024"),
        (["add", "a\nb", "--no-password"], "", "give 1 to 64 characters"),
        (["add", "ann", "--no-password", "--topic", "a*b"], "", "the pattern is 'a*b'"),
    ],
)
def test_what_can_not_be_done_is_one_sentence(
    file: Path, inside: Inside, words: list[str], typed: str, says: str
) -> None:
    assert says in inside.refused(*USER, *words, data=typed)
    assert not file.exists()
