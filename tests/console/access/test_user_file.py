"""The file of users: written for its owner alone, refused otherwise, read again after a change."""

import json
import os
from pathlib import Path

import pytest
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Bodies, Right
from aerobee.console.access.user_file import BadUsers, User, UserFile, checked

KEPT = hash_password("correct horse")
ANN = User("ann", Right.OPERATE, ("orders*",), ("shop",), Bodies.MASKED, KEPT)


def test_users_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "more" / "users.json"
    UserFile(path).write({"ann": ANN, "bob": User("bob", Right.VIEW)})
    assert path.stat().st_mode & 0o777 == 0o600
    file = UserFile(path)
    assert file.users() == {"ann": ANN, "bob": User("bob", Right.VIEW)}
    visitor = ANN.visitor("10.0.0.1")
    assert (visitor.name, visitor.right, visitor.bodies) == ("ann", Right.OPERATE, Bodies.MASKED)
    assert visitor.may(Right.OPERATE, topic="orders-1", group="shop")
    assert not visitor.may(Right.VIEW, group="shops")


def test_a_change_of_the_file_is_seen(tmp_path: Path) -> None:
    file = UserFile(tmp_path / "users.json")
    assert file.users() == {}
    other = UserFile(file.path)
    other.write({"ann": ANN})
    assert file.find("ann") == ANN
    other.write({})
    assert file.find("ann") is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666, 0o620])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = UserFile(tmp_path / "users.json")
    file.write({"ann": ANN})
    assert file.find("ann") == ANN
    file.path.chmod(mode)
    with pytest.raises(BadUsers, match=f"its mode is {mode:04o}.* run chmod 600"):
        file.users()
    assert file.find("ann") is None
    file.path.chmod(0o600)
    assert file.find("ann") == ANN


ROW = {"name": "ann", "right": "admin"}
BAD = [
    ("[]", "can't be read"),
    ("{", "can't be read"),
    ("[" * 100_000, "can't be read"),
    (json.dumps({"users": [ROW | {"right": "root"}]}), "none of viewer, operator, admin"),
    (json.dumps({"users": [ROW | {"bodies": "x"}]}), "can't be read"),
    (json.dumps({"users": [ROW | {"topics": "orders"}]}), "topics of 'ann' is no list"),
    (json.dumps({"users": [ROW | {"topics": ["a*b"]}]}), "the pattern is"),
    (json.dumps({"users": [ROW | {"pasword": "x"}]}), "'pasword' is no field"),
    (json.dumps({"users": [ROW | {"password": "plain text"}]}), "none of scrypt"),
    (json.dumps({"users": [ROW, ROW]}), "a name is in it twice"),
    (json.dumps({"users": [ROW | {"name": str(n)} for n in range(1_001)]}), "1001 users"),
    (json.dumps({"users": [ROW | {"name": ""}]}), "the name is"),
    (" " * (5 << 20), "over 4194304 bytes"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_a_file_that_can_not_be_understood_gives_nobody_access(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "users.json"
    path.write_text(text)
    os.chmod(path, 0o600)
    file = UserFile(path)
    with pytest.raises(BadUsers, match=says):
        file.users()
    assert file.find("ann") is None
    assert "plain text" not in str(says)


def test_a_file_that_can_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUsers, match="name another file with --users"):
        UserFile(tmp_path / "file" / "users.json").write({})


@pytest.mark.parametrize("name", ["", " ann", "x" * 65, "a\nb"])
def test_a_name_that_can_not_be_used_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="give 1 to 64 characters"):
        checked(User(name, Right.VIEW))
