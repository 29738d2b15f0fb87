"""Access control of a name server: signatures, users and access lists.

RocketMQ's name servers have none. Requests are signed as a broker's are, and users and access lists
have the form of a broker's files. Reads need no signature, so that clients of RocketMQ find routes,
unless the settings ask everybody for one.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..conf.secret import check_mode
from ..conf.sources import ConfigError
from ..protocol import codes
from ..protocol.aio.connection import Connection, Handler, Row
from ..protocol.bodies.access import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    AclTable,
    UserInfo,
    UserTable,
)
from ..protocol.command import Command, read_ext
from ..protocol.errors import Refusal
from ..protocol.security import policies as rules
from ..protocol.security.policies import CLUSTER, CREATE, DELETE, GET, TOPIC, UPDATE, Need
from ..protocol.security.signature import ACCESS_KEY, is_signed
from .config import NamesrvConfig

log = logging.getLogger(__name__)

ITSELF = "NameServer"  # the resource Cluster:NameServer: key-value config, permissions, settings
READ = "ANY"  # the access of rows that any client may ask for
USERS, LISTS = "users.json", "acls.json"
USER_PREFIX = "User:"
TYPES, STATUSES = (SUPER, NORMAL), (ENABLED, DISABLED)
FILE_BYTES_MAX = 64 << 20
SHOWN_CHARS_MAX = 64  # of an unknown name
LOG_EVERY_MS = 1_000

OF_BROKERS = frozenset(
    {
        *(codes.REGISTER_BROKER, codes.UNREGISTER_BROKER),
        *(codes.QUERY_DATA_VERSION, codes.BROKER_HEARTBEAT),
    }
)
OF_TOPICS = {codes.REGISTER_TOPIC_IN_NAMESRV: CREATE, codes.DELETE_TOPIC_IN_NAMESRV: DELETE}

Table = TypeVar("Table", UserTable, AclTable)
Lists = dict[str, dict[str, list[rules.PolicyEntry]]]  # entries by user and type of policy


class Access:
    """Users and access lists; lets requests through to their handlers, or refuses them. `refused`
    counts the latter."""

    def __init__(
        self, config: NamesrvConfig, now_ms: Callable[[], int], cluster_of: Callable[[str], str]
    ) -> None:
        """`cluster_of` gives the cluster of a registered broker name, "" for an unknown one.
        ConfigError for a file that can't be read, or that others can read."""
        self.refused = 0
        self._is_limited = config.authorization_enabled
        self._all_sign = config.namesrv_authentication_required
        self._first = config.init_user()
        self._folder = Path(config.auth_users_path).expanduser() if config.auth_users_path else None
        self._now_ms = now_ms
        self._cluster_of = cluster_of
        self._log_again_ms = 0
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

    def guard(self, table: Mapping[int, Row]) -> dict[int, Row]:
        """The same table, in which requests are looked at first."""
        return {
            code: row if row.access == READ and not self._all_sign else self._guarded(row)
            for code, row in table.items()
        }

    def check(self, row: Row, command: Command, connection: Connection) -> None:
        """Refusal (NO_PERMISSION) when the request may not be served."""
        try:
            fields = _fields(command)
            command.ext = read_ext(fields)
            user = self._proven(command, fields)
            if self._is_limited and not user.is_super and row.access != READ:
                name = user.username or ""
                self._check_rules(name, _need(command.code, fields), connection)
                owner = self._cluster_of(fields.get("brokerName", ""))
                if command.code in OF_BROKERS and owner:  # what the request says may be another
                    self._check_rules(name, Need(CLUSTER, owner, (UPDATE,)), connection)
        except Refusal as refusal:
            self._note(command, connection, refusal)
            raise

    def _guarded(self, row: Row) -> Row:
        kind = row.header
        handler: Handler = row.handler

        def look_first(header: None, command: Command, connection: Connection) -> Any:
            self.check(row, command, connection)
            return handler(None if kind is None else command.header(kind), command, connection)

        return Row(row.code, None, look_first, row.access, bulk=row.bulk)

    def _proven(self, command: Command, fields: Mapping[str, str]) -> UserInfo:
        name = fields.get(ACCESS_KEY, "")
        if not name:
            raise Refusal(
                codes.NO_PERMISSION,
                "the request has no AccessKey, and this name server serves it only when it is "
                "signed with a user's name and password",
            )
        user = self._users.get(name)
        if user is None:
            shown = ascii(name[:SHOWN_CHARS_MAX])[1:-1]
            raise Refusal(codes.NO_PERMISSION, f"User:{shown} is not found.")
        if user.is_disabled:
            raise Refusal(codes.NO_PERMISSION, f"User:{name} is disabled.")
        if not is_signed(fields, command.body or b"", command.version, user.password or ""):
            raise Refusal(
                codes.NO_PERMISSION,
                "check signature failed: it was not made with this user's password, or the request "
                "was changed on its way",
            )
        return user

    def _check_rules(self, name: str, need: Need, connection: Connection) -> None:
        ip = connection.address.rpartition(":")[0].strip("[]")
        denial = rules.denial(self._lists.get(name, {}), need, ip)
        if denial is not None:
            raise Refusal(
                codes.NO_PERMISSION,
                f"{USER_PREFIX}{name} has no permission to access {need.kind}:{need.name} from "
                f"{ip}, {denial}",
            )

    def _note(self, command: Command, connection: Connection, refusal: Refusal) -> None:
        self.refused += 1
        now = self._now_ms()
        if now >= self._log_again_ms:
            self._log_again_ms = now + LOG_EVERY_MS
            log.warning(
                "refused request %s of %s: %s (%d refused since the start)",
                codes.REQUEST_NAMES.get(command.code, str(command.code)),
                connection.address,
                refusal.remark,
                self.refused,
            )

    # ---- the files

    def _stamp(self) -> object:
        if self._folder is None:
            return None
        return [_stamp(self._folder / name) for name in (USERS, LISTS)]

    def _read(self) -> tuple[dict[str, UserInfo], Lists]:
        users: dict[str, UserInfo] = {}
        lists: Lists = {}
        if self._folder is not None:
            users = _users_of(self._folder / USERS)
            lists = _lists_of(self._folder / LISTS)
        first = self._first
        if first is not None and first.username is not None:
            users[first.username] = first
        return users, lists


def _need(code: int, fields: Mapping[str, str]) -> Need:
    """The permission that a request needs where authorization is on."""
    if code in OF_BROKERS:
        return Need(CLUSTER, fields.get("clusterName", ""), (UPDATE,))
    action = OF_TOPICS.get(code)
    if action is not None:
        return Need(TOPIC, fields.get("topic", ""), (action,))
    return Need(CLUSTER, ITSELF, (GET if code == codes.GET_NAMESRV_CONFIG else UPDATE,))


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


def _fields(command: Command) -> dict[str, str]:
    try:
        return command.fields()
    except ValueError:  # bytes that are no UTF-8
        raise Refusal(codes.NO_PERMISSION, "the request's header can't be read") from None
