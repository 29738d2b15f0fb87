"""The users that this broker knows by name, with their passwords: users.json.

The file and its .bak can be read by their owner alone: the passwords must stand there as they are,
since a signature can't be checked by a hash of one. A change is in the file when the call returns,
or did not happen.
"""

from pathlib import Path

from ...protocol import codes
from ...protocol.bodies.access import ENABLED, NORMAL, UserInfo, UserTable
from ...protocol.errors import Refusal
from ...store.files import json_file
from ..settings.user_rules import STATUSES, TYPES, check_name, check_password

USERS_MAX = 10_000


class Users:
    """The users by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._users: dict[str, UserInfo] = {}

    def __len__(self) -> int:
        return len(self._users)

    def load(self) -> None:
        """Read the file; StoreError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self._path, _decode)
        if found is not None:
            self._users = found.users

    def get(self, name: str) -> UserInfo | None:
        return self._users.get(name)

    def all(self, containing: str | None = None) -> list[UserInfo]:
        """Users whose name contains this, in the order of their names' bytes."""
        wanted = containing if containing and containing.strip() else ""
        names = sorted((name for name in self._users if wanted in name), key=str.encode)
        return [self._users[name] for name in names]

    def create(self, info: UserInfo) -> None:
        """Add a user. Refusal when there is one of that name, or something is wrong with it."""
        name = info.username or ""
        check_name(name)
        check_password(info.password or "")
        if name in self._users:
            raise Refusal(codes.NO_PERMISSION, "The user is existed")
        if len(self._users) >= USERS_MAX:
            raise Refusal(
                codes.NO_PERMISSION,
                f"there are {len(self._users)} users, the limit is {USERS_MAX}; delete some",
            )
        made = UserInfo(name, info.password, info.user_type or NORMAL, info.user_status or ENABLED)
        self._save(self._users | {name: made})

    def update(self, info: UserInfo) -> None:
        """Change the given fields of a user. Refusal when there is none of that name."""
        name = info.username or ""
        old = self._users.get(name)
        if old is None:
            raise Refusal(codes.NO_PERMISSION, "The user is not exist")
        password = old.password
        if info.password and info.password.strip():
            password = info.password
            check_password(password)
        made = UserInfo(
            name, password, info.user_type or old.user_type, info.user_status or old.user_status
        )
        self._save(self._users | {name: made})

    def delete(self, name: str) -> None:
        """Remove a user; nothing happens when there is none of that name."""
        if name in self._users:
            self._save({other: info for other, info in self._users.items() if other != name})

    def _save(self, users: dict[str, UserInfo]) -> None:
        text = UserTable(users).encode(standard=True)
        json_file.save(self._path, text, mode=json_file.OWNER_ONLY)
        self._users = users


def _decode(text: bytes) -> UserTable:
    found = UserTable.decode(text)
    for name, info in found.users.items():
        types, statuses = TYPES.values(), STATUSES.values()
        is_whole = info.username == name and info.password
        if not (is_whole and info.user_type in types and info.user_status in statuses):
            raise ValueError(f"user {name!r} lacks its name, password, type or status")
    return found
