"""The users of a file: JSON, which only its owner may read.

The file is read again when it has changed. While it can't be read, it gives no access.
"""

import json
import logging
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .passwords import PasswordHash
from .rights import Bodies, Patterns, Right, Visitor

RIGHTS = {"viewer": Right.VIEW, "operator": Right.OPERATE, "admin": Right.ADMINISTER}
NAMES = {right: name for name, right in RIGHTS.items()}
USERS_MAX = 1_000
BYTES_MAX = 4 << 20
NAME_CHARS_MAX = 64
MODE = 0o600

log = logging.getLogger(__name__)


class BadUsers(Exception):
    """The file of users can't be used: which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class User:
    """One user. Without a password it only comes by the header of a proxy."""

    name: str
    right: Right
    topics: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ("*",)
    bodies: Bodies = Bodies.SHOWN
    password: PasswordHash | None = field(default=None, repr=False)

    def visitor(self, address: str) -> Visitor:
        """The user as a visitor from an address; ValueError for patterns that can't be used."""
        topics, groups = Patterns.of(self.topics), Patterns.of(self.groups)
        return Visitor(self.name, self.right, topics, groups, self.bodies, address=address)


class UserFile:
    """The users by name, as the file is now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._users: dict[str, User] = {}
        self._read_as: tuple[int, ...] | None = None
        self._wrong: str | None = None

    def users(self) -> Mapping[str, User]:
        """All users; BadUsers when the file can't be used, none when there is no file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._users, self._read_as = {}, None
            return self._users
        except OSError as wrong:
            raise self._bad(str(wrong.strerror), "correct it") from None
        now = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid)
        if now != self._read_as:
            self._users, self._read_as = self._read(), now
        return self._users

    def find(self, name: str) -> User | None:
        """The user of this name; None without one and while the file can't be used."""
        try:
            users = self.users()
        except BadUsers as wrong:
            if str(wrong) != self._wrong:
                log.error("nobody can log in: %s", wrong)
            self._wrong = str(wrong)
            return None
        self._wrong = None
        return users.get(name)

    def write(self, users: Mapping[str, User]) -> None:
        """Replace the file; BadUsers when that fails."""
        rows = [_row(user) for _, user in sorted(users.items())]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(prefix=".users-", dir=self.path.parent)
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump({"users": rows}, file, indent=2)
                    file.write("\n")
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, self.path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as wrong:
            raise self._bad(str(wrong.strerror), "name another file with --users") from None

    def _read(self) -> dict[str, User]:
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                mode = stat.S_IMODE(found.st_mode)
                if mode & 0o077:
                    raise self._bad(
                        f"its mode is {mode:04o}, so others can read it, and {MODE:04o} is needed",
                        f"run chmod 600 {self.path}",
                    )
                if found.st_uid not in (0, os.getuid()):
                    raise self._bad(f"user {found.st_uid} owns it", "own it yourself")
                text = file.read(BYTES_MAX + 1)
        except OSError as wrong:
            raise self._bad(str(wrong.strerror), "correct it") from None
        if len(text) > BYTES_MAX:
            raise self._bad(f"it has over {BYTES_MAX} bytes, the limit", "use fewer users")
        try:
            rows = json.loads(text)["users"]
            users = [_user(row) for row in rows]
        except (ValueError, KeyError, TypeError, RecursionError) as wrong:
            raise self._bad(
                f"it can't be read: {wrong}", "write it with aerobee console user"
            ) from None
        if len(users) > USERS_MAX:
            raise self._bad(f"it has {len(users)} users, the limit is {USERS_MAX}", "use fewer")
        by_name = {user.name: user for user in users}
        if len(by_name) < len(users):
            raise self._bad("a name is in it twice", "take one of the two out")
        return by_name

    def _bad(self, why: str, cure: str) -> BadUsers:
        return BadUsers(f"the users of {self.path} can't be used: {why}; {cure}")


def checked(user: User) -> User:
    """The user; ValueError for a name or a pattern that can't be used."""
    name = user.name
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"the name is {name[:80]!a}; give 1 to {NAME_CHARS_MAX} characters that can be seen"
        )
    user.visitor("")
    return user


def _user(row: Any) -> User:
    kept = row.get("password")
    unknown = row.keys() - {"name", "right", "topics", "groups", "bodies", "password"}
    if unknown:
        raise ValueError(f"{sorted(unknown)[0][:40]!a} is no field of a user")
    for key in ("topics", "groups"):
        if not isinstance(row.get(key, []), list):
            raise ValueError(f"{key} of {row['name']!a} is no list")
    if row["right"] not in RIGHTS:
        raise ValueError(f"the right of {row['name']!a} is none of {', '.join(RIGHTS)}")
    return checked(
        User(
            str(row["name"]),
            RIGHTS[row["right"]],
            tuple(map(str, row.get("topics", ["*"]))),
            tuple(map(str, row.get("groups", ["*"]))),
            Bodies(row.get("bodies", Bodies.SHOWN)),
            None if kept is None else PasswordHash.parse(str(kept)),
        )
    )


def _row(user: User) -> dict[str, object]:
    return {
        "name": user.name,
        "right": NAMES[user.right],
        "topics": list(user.topics),
        "groups": list(user.groups),
        "bodies": str(user.bodies),
        "password": None if user.password is None else user.password.text(),
    }
