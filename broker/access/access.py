"""Access control: the sender of a request and its permissions; RocketMQ's "ACL 2.0".

A request names its user in the header (AccessKey) and proves it by a signature over header and
body, made with that user's password. The check runs before the handler and the header class see the
request. With access control the table of requests is a different one, so that without it there is
no cost.
"""

import logging
from collections.abc import Callable, Mapping

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.guard import Refusals, fields_of, guarded, proven
from ...protocol.bodies.access import UserInfo
from ...protocol.command import Command, read_ext
from ...protocol.errors import Refusal
from ...protocol.message.record import decode_record
from ...protocol.security.signature import ACCESS_KEY, SigningKey, signing_key
from ...store.base.errors import StoreError
from ..settings.access_settings import codes_of, first_users
from ..settings.config import BrokerConfig
from .access_lists import USER_PREFIX, AccessLists
from .needs import needs, place_of, placed_needs, sending_needs
from .users import Users

log = logging.getLogger(__name__)

UNSIGNED = (
    "username cannot be null: the request has no AccessKey, and this broker serves "
    "only who signs with a user's name and password"
)


class Access:
    """Users and access lists, which may be kept before they count; where access control
    `is_enabled`, lets requests through to their handlers, or refuses them."""

    def __init__(
        self,
        config: BrokerConfig,
        users: Users,
        lists: AccessLists,
        message_at: Callable[[int], bytes | None],
        now_ms: Callable[[], int],
    ) -> None:
        """`message_at` gives the record at a log offset, None where there is none."""
        self.users = users
        self.lists = lists
        self.is_enabled = config.authentication_enabled
        self.refusals = Refusals(now_ms)
        self._cluster = config.broker_cluster_name
        self._is_limited = config.authorization_enabled
        self._unsigned = codes_of("authenticationWhitelist", config.authentication_whitelist)
        self._unlimited = codes_of("authorizationWhitelist", config.authorization_whitelist)
        self._message_at = message_at

    def guard(self, rows: Mapping[int, Row]) -> dict[int, Row]:
        """The same table, in which every request is looked at first if that is switched on."""
        if not self.is_enabled:
            return dict(rows)
        return {code: guarded(row, self._look_first) for code, row in rows.items()}

    def check(self, command: Command, connection: Connection) -> None:
        """Refusal (NO_PERMISSION) when the request may not be served.

        The handler reads the signed fields: from now on the command has these.
        """
        try:
            fields = fields_of(command)
            command.ext = read_ext(fields)
            self._check(command, fields, connection)
        except Refusal as refusal:
            self.refusals.note(command, connection, refusal)
            raise

    def may_change_supers(self, command: Command) -> bool:
        """Whether a super user has sent the request; Refusal when that is not proven.

        Without access control no request needs a signature, and nothing is proven, as in RocketMQ.
        """
        fields = fields_of(command)
        if self.is_enabled:
            return self._proven(command, fields).is_super
        name = fields.get(ACCESS_KEY, "")
        user = self.users.get(name)
        return not name or (user is not None and user.is_super)

    def signer(self, name: str) -> tuple[UserInfo, SigningKey] | None:
        """The user of this name and the key of its signatures; None when it may not sign."""
        user = self.users.get(name)
        if user is None or user.is_disabled:
            return None
        return user, signing_key((user.password or "").encode())

    def may_send(self, code: int, user: UserInfo, topic: str, connection: Connection) -> bool:
        """Whether this user, whose signature is proven, may send to the topic from there by a
        request of this code."""
        if not self._is_limited or code in self._unlimited or user.is_super:
            return True
        name, ip = user.username or "", _ip_of(connection)
        return all(self.lists.denial(name, need, ip) is None for need in sending_needs(topic))

    def _check(self, command: Command, fields: dict[str, str], connection: Connection) -> None:
        user = None
        if command.code not in self._unsigned:
            user = self._proven(command, fields)
        if not self._is_limited or command.code in self._unlimited:
            return
        wanted = needs(command, fields, self._cluster)
        place = place_of(command)
        if place is not None:
            record = self._message_at(place)
            if record is not None:
                wanted += placed_needs(command, fields, decode_record(record).topic)
        if wanted and user is None:
            user = self._proven(command, fields)
        if user is None or user.is_super:
            return
        name = user.username or ""
        ip = _ip_of(connection)
        for need in wanted:
            denial = self.lists.denial(name, need, ip)
            if denial is not None:
                raise Refusal(
                    codes.NO_PERMISSION,
                    f"{USER_PREFIX}{name} has no permission to access {need.kind}:{need.name} from "
                    f"{ip}, {denial}",
                )

    def _proven(self, command: Command, fields: dict[str, str]) -> UserInfo:
        return proven(command, fields, self.users.get, UNSIGNED)

    def _look_first(self, row: Row, command: Command, connection: Connection) -> None:
        self.check(command, connection)


def open_access(
    config: BrokerConfig, message_at: Callable[[int], bytes | None], now_ms: Callable[[], int]
) -> Access | None:
    """Users and lists from their files, with the first users created; None without access control.

    StoreError when a file can't be read or written.
    """
    if not config.keeps_users:
        return None
    folder = config.store_dir / "config"
    users, lists = Users(folder / "users.json"), AccessLists(folder / "acls.json")
    users.load()
    lists.load()
    given = (config.init_authentication_user, config.inner_client_authentication_credentials)
    for user in first_users(*given):
        if users.get(user.username or "") is None:
            try:
                users.create(user)
            except Refusal as wrong:  # there are too many
                raise StoreError(f"user {user.username} can't be made: {wrong.remark}") from None
    if config.authentication_enabled and not len(users):
        log.warning(
            "access control is on and there is no user, so nobody can do anything; name the first "
            "in initAuthenticationUser"
        )
    return Access(config, users, lists, message_at, now_ms)


def _ip_of(connection: Connection) -> str:
    return connection.address.rpartition(":")[0].strip("[]")
