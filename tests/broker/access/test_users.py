"""The table of users: what it takes, what it keeps, and that it keeps it to itself."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.broker.access import users as users_module
from aerobee.broker.access.users import Users
from aerobee.broker.settings.user_rules import PASSWORD_CHARS_MAX, USER_CHARS_MAX, with_known_words
from aerobee.protocol.bodies.access import UserInfo
from aerobee.protocol.errors import Refusal
from aerobee.store.base.errors import DamagedStore, StoreError
from aerobee.store.files import disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "users.json"


@pytest.fixture
def users(path: Path) -> Users:
    users = Users(path)
    users.load()
    return users


def test_a_user_is_normal_and_enabled_unless_it_is_said(users: Users) -> None:
    users.create(UserInfo("a", "secret"))
    assert users.get("a") == UserInfo("a", "secret", "Normal", "enable")
    assert users.get("b") is None


def test_what_is_changed_is_in_the_file(users: Users, path: Path) -> None:
    users.create(UserInfo("a", "secret", "Super"))
    users.create(UserInfo("b", "secret"))
    users.update(UserInfo("a", None, None, "disable"))
    users.update(UserInfo("a", "new"))
    users.delete("b")
    again = Users(path)
    again.load()
    assert again.all() == [UserInfo("a", "new", "Super", "disable")]


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_nobody_else_can_read_the_passwords(users: Users, path: Path) -> None:
    users.create(UserInfo("a", "secret"))
    users.create(UserInfo("b", "secret"))
    for file in (path, path.with_name("users.json.bak")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in repr(users.all())


def test_users_are_listed_by_their_names_bytes_and_by_a_part_of_them(users: Users) -> None:
    for name in ("b", "é", "a", "Z", "ab"):
        users.create(UserInfo(name, "secret"))
    assert [user.username for user in users.all()] == ["Z", "a", "ab", "b", "é"]
    assert [user.username for user in users.all("b")] == ["ab", "b"]
    assert len(users.all(" ")) == 5


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (UserInfo("", "secret"), "username can not be blank"),
        (UserInfo(" ", "secret"), "username can not be blank"),
        (UserInfo(None, "secret"), "username can not be blank"),
        (UserInfo("a\nb", "secret"), "all must be printable"),
        (UserInfo("\ud800", "secret"), "all must be printable"),
        (UserInfo("a" * (USER_CHARS_MAX + 1), "secret"), "has 256 characters"),
        (UserInfo("a", ""), "password can not be blank"),
        (UserInfo("a", None), "password can not be blank"),
        (UserInfo("a", "x" * (PASSWORD_CHARS_MAX + 1)), "the limit is 1024"),
    ],
)
def test_a_user_without_a_proper_name_or_password_is_refused(
    users: Users, info: UserInfo, why: str
) -> None:
    with pytest.raises(Refusal, match=why):
        users.create(info)
    assert users.all() == []


def test_there_is_one_of_a_name_and_nobody_is_changed_who_is_not_there(users: Users) -> None:
    users.create(UserInfo("a", "secret"))
    with pytest.raises(Refusal, match="The user is existed"):
        users.create(UserInfo("a", "other"))
    with pytest.raises(Refusal, match="The user is not exist"):
        users.update(UserInfo("b", "other"))
    with pytest.raises(Refusal, match="the limit is 1024"):
        users.update(UserInfo("a", "x" * 1_025))
    users.delete("b")
    assert users.get("a") == UserInfo("a", "secret", "Normal", "enable")


def test_more_users_than_the_limit_are_refused(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "USERS_MAX", 1)
    users.create(UserInfo("a", "secret"))
    with pytest.raises(Refusal, match="there are 1 users, the limit is 1; delete some"):
        users.create(UserInfo("b", "secret"))


def test_words_are_read_in_any_case_and_others_refused() -> None:
    assert with_known_words(UserInfo("a", "p", "super", "DISABLE")) == UserInfo(
        "a", "p", "Super", "disable"
    )
    with pytest.raises(Refusal, match="userType is 'root', but must be Super or Normal"):
        with_known_words(UserInfo("a", "p", "root"))
    with pytest.raises(Refusal, match="userStatus is 'off', but must be enable or disable"):
        with_known_words(UserInfo("a", "p", None, "off"))


@pytest.mark.parametrize(
    "text",
    [
        '{"users":{"a":{"username":"b","password":"p","userType":"Super","userStatus":"enable"}}}',
        '{"users":{"a":{"username":"a","password":"","userType":"Super","userStatus":"enable"}}}',
        '{"users":{"a":{"username":"a","password":"p","userType":"root","userStatus":"enable"}}}',
        '{"users":{"a":{"username":"a","password":"p","userType":"Super"}}}',
        "{",
    ],
)
def test_a_file_that_was_spoilt_by_hand_stops_the_start(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(DamagedStore, match=r"users\.json"):
        Users(path).load()


def test_what_can_not_be_written_did_not_happen(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.create(UserInfo("a", "secret"))

    class Full(disk.Disk):
        def pwrite(self, fd: int, data: object, offset: int) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "current", Full())
    changes: tuple[Callable[[], object], ...] = (
        lambda: users.create(UserInfo("b", "secret")),
        lambda: users.update(UserInfo("a", "other")),
        lambda: users.delete("a"),
    )
    for change in changes:
        with pytest.raises(StoreError, match="No space left"):
            change()
    assert users.all() == [UserInfo("a", "secret", "Normal", "enable")]
