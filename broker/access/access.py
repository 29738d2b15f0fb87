"""Access control: users, access lists and the guard before the handlers; RocketMQ's "ACL 2.0".

With access control the table of requests is a different one, so that without it there is no cost.
"""

import logging
from collections.abc import Callable

from ...protocol.aio.connection import Connection
from ...protocol.aio.guard import Guard, Refusals, fields_of
from ...protocol.bodies.access import UserInfo
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.security.signature import ACCESS_KEY, SigningKey, signing_key
from ...store.base.errors import StoreError
from ..settings.access_settings import codes_of, first_users
from ..settings.config import BrokerConfig
from .access_lists import AccessLists
from .needs import sending_needs
from .users import Users

log = logging.getLogger(__name__)

NO_USER = (
    "username cannot be null: the request has no AccessKey, and this broker serves "
    "only who signs with a user's name and password"
)


class Access:
    """Users and access lists, which may be kept before they count. The `guard` stands before the
    handlers where access control `is_enabled`."""

    def __init__(
        self, config: BrokerConfig, users: Users, lists: AccessLists, now_ms: Callable[[], int]
    ) -> None:
        self.users = users
        self.lists = lists
        self.is_enabled = config.authentication_enabled
        self.refusals = Refusals(now_ms)
        self.guard = Guard(
            users.get,
            lists.denial,
            self.refusals,
            cluster=config.broker_cluster_name,
            no_user=NO_USER,
            is_limited=config.authorization_enabled,
            unsigned=codes_of("authenticationWhitelist", config.authentication_whitelist),
            unlimited=codes_of("authorizationWhitelist", config.authorization_whitelist),
        )

    def may_change_supers(self, command: Command) -> bool:
        """True if a super user has sent the request. Refusal when that is not proven.

        Without access control no request needs a signature, and nothing is proven, as in RocketMQ.
        """
        fields = fields_of(command)
        if self.is_enabled:
            return self.guard.proven(command, fields).is_super
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
        """True if this user, whose signature is proven, may send to the topic from the connection's
        address by a request of this code."""
        return self.guard.allows(code, user, sending_needs(topic), connection)


def open_access(config: BrokerConfig, now_ms: Callable[[], int]) -> Access | None:
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
    return Access(config, users, lists, now_ms)
