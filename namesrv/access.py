"""Access control of a name server: signatures, users and access lists.

RocketMQ's name servers have none. Requests are signed as a broker's are, and users and access lists
have the form of a broker's files. Reads need no signature, so that clients of RocketMQ find routes,
unless the settings ask every client for one.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..conf.secret import check_mode
from ..conf.sources import ConfigError
from ..protocol.aio.guard import SHOWN_CHARS_MAX, Guard, Refusals
from ..protocol.bodies.access import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    AclTable,
    UserInfo,
    UserTable,
)
from ..protocol.command import Command
from ..protocol.errors import Refusal
from ..protocol.security import policies as rules
from ..protocol.security.needs import Fields, Needs
from ..protocol.security.policies import CLUSTER, TOPIC, UPDATE, USER_PREFIX, Need
from .config import NamesrvConfig

log = logging.getLogger(__name__)

ITSELF = "NameServer"  # the resource Cluster:NameServer: key-value config, permissions, settings
USERS, LISTS = "users.json", "acls.json"
TYPES, STATUSES = (SUPER, NORMAL), (ENABLED, DISABLED)
FILE_BYTES_MAX = 64 << 20
NO_USER = (
    "the request has no AccessKey, and this name server serves it only when it is signed with a "
    "user's name and password"
)

Table = TypeVar("Table", UserTable, AclTable)
Lists = dict[str, dict[str, list[rules.PolicyEntry]]]  # entries by user and type of policy


class Access:
    """Users and access lists, and the guard before the handlers."""

    def __init__(self, config: NamesrvConfig, now_ms: Callable[[], int]) -> None:
        """ConfigError for a file that can't be read, or that others can read."""
        self.guard = Guard(
            lambda name: self._users.get(name),
            self._denial,
            Refusals(now_ms),
            cluster=ITSELF,
            no_user=NO_USER,
            is_limited=config.authorization_enabled,
            all_sign=config.namesrv_authentication_required,
        )
        self._first = config.first_users()
        self._folder = Path(config.auth_users_path).expanduser() if config.auth_users_path else None
        self._seen: object = self._stamp()
        self._users, self._lists = self._read()
        if not self._users:
            log.warning(
                "access control is on and there is no user, so no broker can register; name one in "
                "initAuthenticationUser"
            )

    def refresh(self) -> None:
        """Read changed files again; a fault is logged, and what was known stays."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._users, self._lists = self._read()
        except ConfigError as wrong:
            log.error("users and rules stay as they were: %s", wrong)
        else:
            log.info("users and rules are read again: %d users", len(self._users))

    def _denial(self, name: str, need: Need, ip: str) -> str | None:
        return rules.denial(self._lists.get(name, {}), need, ip)

    # ---- the files

    def _stamp(self) -> object:
        if self._folder is None:
            return None
        return [_stamp(self._folder / name) for name in (USERS, LISTS)]

    def _read(self) -> tuple[dict[str, UserInfo], Lists]:
        users: dict[str, UserInfo] = {}
        lists: Lists = {}
        if self._folder is not None:
            file = self._folder / USERS
            # The first broker on the folder makes it, and must sign with one of these to register.
            if file.exists() or not self._first:
                users = _users_of(file)
            lists = _lists_of(self._folder / LISTS)
        users |= {first.username or "": first for first in self._first}
        return users, lists


def of_broker(cluster_of: Callable[[str], str]) -> Needs:
    """The cluster that the request names, and that of the broker name (`cluster_of`, "" for an
    unknown one), which may be another."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        owner = cluster_of(fields.get("brokerName", ""))
        clusters = [fields.get("clusterName", ""), *([owner] if owner else [])]
        return [Need(CLUSTER, one, (UPDATE,)) for one in clusters]

    return Needs(((CLUSTER, (UPDATE,)),), find)


def of_topic(action: str) -> Needs:
    """An action on the topic that the request names."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        return [Need(TOPIC, fields.get("topic", ""), (action,))]

    return Needs(((TOPIC, (action,)),), find)


def _users_of(path: Path) -> dict[str, UserInfo]:
    users = dict(_decoded(path, UserTable).users)
    for name, info in users.items():
        is_whole = info.username == name and info.password
        if not (is_whole and info.user_type in TYPES and info.user_status in STATUSES):
            raise ConfigError(
                f"authUsersPath: {path}: user {name[:SHOWN_CHARS_MAX]!a} lacks its name, "
                f"password, type ({' or '.join(TYPES)}) or status ({' or '.join(STATUSES)})"
            )
    return users


def _lists_of(path: Path) -> Lists:
    if not path.exists():
        return {}
    try:
        found: Lists = {}
        for subject, info in _decoded(path, AclTable).acls.items():
            mine = found.setdefault(subject.removeprefix(USER_PREFIX), {})
            for policy in info.policies or ():
                if policy.policy_type not in (None, rules.CUSTOM, rules.DEFAULT):
                    raise ConfigError(
                        f"authUsersPath: {path}: policyType {policy.policy_type!a} is neither "
                        f"{rules.CUSTOM} nor {rules.DEFAULT}; correct it"
                    )
                entries = mine.setdefault(policy.policy_type or rules.CUSTOM, [])
                entries += map(rules.entry_of, policy.entries or ())
        return found
    except Refusal as wrong:
        raise ConfigError(f"authUsersPath: {path}: {wrong.remark}") from None


def _decoded(path: Path, kind: type[Table]) -> Table:
    """The table in a file; ConfigError when it can't be read, or when others can read it."""
    check_mode("authUsersPath", path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
        return kind.decode(data)
    except (OSError, ValueError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is not the JSON of a broker"
        raise ConfigError(f"authUsersPath: {path} can't be read: {reason}; correct it") from None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
