"""The command `aerobee console user`: users are added, listed, removed; passwords never shown."""

import io
from pathlib import Path

import pytest
from aerobee.console.access.passwords import is_right
from aerobee.console.access.user_file import UserFile
from aerobee.scripts import cli
from aerobee.scripts.console_users import default_users

PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return default_users()


def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *words: str,
    typed: str = "",
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    code = cli.main(["console", "user", *words])
    return code, *capsys.readouterr()


def test_a_user_is_added_listed_and_removed(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("add", "ann", "--right", "operator", "--topic", "orders*", "--topic", "pay")
    code, out, error = run(capsys, monkeypatch, *words, "--bodies", "masked", typed=f"{PASSWORD}\n")
    assert (code, error) == (0, "")
    assert out == f"user ann is operator in {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    user = UserFile(file).users()["ann"]
    assert is_right(PASSWORD, user.password)
    assert (user.topics, user.groups) == (("orders*", "pay"), ("*",))
    assert run(capsys, monkeypatch, "add", "bob", "--no-password")[0] == 0
    _, out, _ = run(capsys, monkeypatch)
    rows = [line.split() for line in out.splitlines()]
    assert rows[1:] == [
        ["ann", "operator", "orders*,pay", "*", "masked", "set"],
        ["bob", "viewer", "*", "*", "shown", "none"],
    ]
    assert PASSWORD not in out + file.read_text()
    code, out, _ = run(capsys, monkeypatch, "remove", "ann")
    assert (code, "open sessions end" in out) == (0, True)
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
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    typed: str,
    says: str,
) -> None:
    code, out, error = run(capsys, monkeypatch, *words, typed=typed)
    assert (code, out) == (1, "")
    assert says in error
    assert not file.exists()
