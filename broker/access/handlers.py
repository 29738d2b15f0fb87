"""Requests about users and access lists: 3001 to 3010.

They are kept once access control is switched on, or before that where
authenticationMetadataProvider and authorizationMetadataProvider name a class. Else RocketMQ answers
each of them SYSTEM_ERROR, and so does this broker, which says why.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.access import AclInfo, UserInfo
from ...protocol.bodies.body import body_of
from ...protocol.codec import fastjson
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.access import AclFilter, AclResource, AclSubject, UserFilter, UserName
from ...protocol.security.policies import resource_of
from ...store.base.errors import StoreError
from ..settings.user_rules import with_known_words
from .access import Access
from .access_lists import user_of
from .needs import CLUSTER_GET, CLUSTER_UPDATE

SUPER_ONLY = "The super user can only be {} by super user"


@dataclass(slots=True, eq=False)
class AdminAuthHandlers:
    """Answers about users, and where `has_lists` about access lists; that there are none where
    `access` is None."""

    _access: Access | None
    _: KW_ONLY
    has_lists: bool

    def rows(self) -> list[Row]:
        return [
            Row(codes.AUTH_CREATE_USER, UserName, self.on_create_user, CLUSTER_UPDATE),
            Row(codes.AUTH_UPDATE_USER, UserName, self.on_update_user, CLUSTER_UPDATE),
            Row(codes.AUTH_DELETE_USER, UserName, self.on_delete_user, CLUSTER_UPDATE),
            Row(codes.AUTH_GET_USER, UserName, self.on_get_user, CLUSTER_GET),
            Row(codes.AUTH_LIST_USER, UserFilter, self.on_list_users, CLUSTER_GET),
            Row(codes.AUTH_CREATE_ACL, AclSubject, self.on_put_acl, CLUSTER_UPDATE),
            Row(codes.AUTH_UPDATE_ACL, AclSubject, self.on_put_acl, CLUSTER_UPDATE),
            Row(codes.AUTH_DELETE_ACL, AclResource, self.on_delete_acl, CLUSTER_UPDATE),
            Row(codes.AUTH_GET_ACL, AclSubject, self.on_get_acl, CLUSTER_GET),
            Row(codes.AUTH_LIST_ACL, AclFilter, self.on_list_acls, CLUSTER_GET),
        ]

    # --- users ----------------------------------------------------------------------------------

    def on_create_user(
        self, header: UserName, command: Command, connection: Connection
    ) -> Response:
        access = self._on(command)
        info = _user_in(header, command)
        if info.is_super:
            _check_super(access, command, SUPER_ONLY.format("create"), codes.SYSTEM_ERROR)
        return _written(lambda: access.users.create(info))

    def on_update_user(
        self, header: UserName, command: Command, connection: Connection
    ) -> Response:
        access = self._on(command)
        info = _user_in(header, command)
        remark = SUPER_ONLY.format("update")
        if info.is_super:
            _check_super(access, command, remark, codes.SYSTEM_ERROR)
        old = access.users.get(info.username or "")
        if old is not None and old.is_super:
            _check_super(access, command, remark, codes.NO_PERMISSION)
        return _written(lambda: access.users.update(info))

    def on_delete_user(
        self, header: UserName, command: Command, connection: Connection
    ) -> Response:
        access = self._on(command)
        name = _name_in(header)
        old = access.users.get(name)
        if old is None:
            return OK
        if old.is_super:
            _check_super(access, command, SUPER_ONLY.format("update"), codes.NO_PERMISSION)

        def delete() -> None:
            access.lists.forget(name)  # first: a user created again must not find the old rights
            access.users.delete(name)

        return _written(delete)

    def on_get_user(self, header: UserName, command: Command, connection: Connection) -> Response:
        found = self._on(command).users.get(_name_in(header))
        return OK if found is None else Response(codes.SUCCESS, body=found.encode())

    def on_list_users(
        self, header: UserFilter, command: Command, connection: Connection
    ) -> Response:
        found = self._on(command).users.all(header.filter)
        return Response(codes.SUCCESS, body=fastjson.dump(found)) if found else OK

    # --- access lists ---------------------------------------------------------------------------

    def on_put_acl(self, header: AclSubject, command: Command, connection: Connection) -> Response:
        access = self._lists_on(command)
        info = body_of(command, AclInfo)
        subject = info.subject or header.subject
        user = user_of(subject)
        if access.users.get(user) is None:
            raise Refusal(codes.NO_PERMISSION, f"The subject of {subject} is not exist.")
        return _written(lambda: access.lists.put(user, info.policies))

    def on_delete_acl(
        self, header: AclResource, command: Command, connection: Connection
    ) -> Response:
        access = self._lists_on(command)
        user = self._subject(access, header.subject)
        about = resource_of(header.resource) if header.resource else None
        return _written(lambda: access.lists.delete(user, header.policy_type, about))

    def on_get_acl(self, header: AclSubject, command: Command, connection: Connection) -> Response:
        access = self._lists_on(command)
        found = access.lists.get(self._subject(access, header.subject))
        return OK if found is None else Response(codes.SUCCESS, body=found.encode())

    def on_list_acls(self, header: AclFilter, command: Command, connection: Connection) -> Response:
        access = self._lists_on(command)
        found = access.lists.all(header.subject_filter, header.resource_filter)
        return Response(codes.SUCCESS, body=fastjson.dump(found)) if found else OK

    # --- inside ---------------------------------------------------------------------------------

    def _on(self, command: Command) -> Access:
        if self._access is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"{codes.REQUEST_NAMES[command.code]}: access control is not configured on this "
                "broker, so it keeps no users and no access lists; whoever can connect may do "
                "everything, so let only those connect who may (bindAddress), or switch it on "
                "(authenticationEnabled), or prepare it (authenticationMetadataProvider)",
            )
        return self._access

    def _lists_on(self, command: Command) -> Access:
        access = self._on(command)
        if not self.has_lists:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"{codes.REQUEST_NAMES[command.code]}: the authorizationMetadataProvider is not "
                "configured on this broker, so it keeps no access lists; set it, or switch access "
                "control on (authenticationEnabled)",
            )
        return access

    @staticmethod
    def _subject(access: Access, subject: str | None) -> str:
        user = user_of(subject)
        if access.users.get(user) is None:
            raise Refusal(codes.NO_PERMISSION, "The subject is not exist.")
        return user


def _name_in(header: UserName) -> str:
    name = header.username or ""
    if not name.strip():
        raise Refusal(codes.INVALID_PARAMETER, "The username is blank")
    return name


def _user_in(header: UserName, command: Command) -> UserInfo:
    name = _name_in(header)
    try:
        given = UserInfo.decode(command.body)
    except ValueError:  # whose text might show the password
        raise Refusal(codes.SYSTEM_ERROR, "the body is not the JSON of a user") from None
    info = with_known_words(given)
    return UserInfo(name, info.password, info.user_type, info.user_status)


def _check_super(access: Access, command: Command, remark: str, code: int) -> None:
    """Refusal unless a super user has signed this, even where a white list spares the signature."""
    if not access.may_change_supers(command):
        raise Refusal(code, remark)


def _written(change: Callable[[], None]) -> Response:
    try:
        change()
    except StoreError as wrong:
        raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
    return OK
