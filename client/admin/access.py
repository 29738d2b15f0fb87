"""Users and access lists of brokers with access control.

Every broker keeps its own, so each change goes to all brokers, including slaves. The caller must be
a super user or have rights on the cluster.
"""

from collections.abc import Iterable
from typing import TypeVar

from ...protocol import codes
from ...protocol.bodies.access import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from ...protocol.bodies.body import Body
from ...protocol.headers.access import AclFilter, AclResource, AclSubject, UserFilter, UserName
from ...protocol.wire import Header
from ..base.responses import bodies_of
from .base import Asking

Info = TypeVar("Info", bound=Body)


class AccessAdmin(Asking):
    """Administration of users and access lists."""

    async def users(self, containing: str = "") -> dict[str, list[UserInfo]]:
        """The users that each master knows, by broker name, with their passwords."""
        return await self._lists(codes.AUTH_LIST_USER, UserFilter(containing or None), UserInfo)

    async def create_user(self, name: str, password: str, *, is_super: bool = False) -> None:
        """Create a user. A super user may do everything, any other user what its access list
        allows."""
        info = UserInfo(name, password, SUPER if is_super else NORMAL)
        await self._tell(codes.AUTH_CREATE_USER, UserName(name), info.encode())

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        is_super: bool | None = None,
        enabled: bool | None = None,
    ) -> None:
        """Change the given fields of a user. A disabled user is rejected."""
        kind = None if is_super is None else SUPER if is_super else NORMAL
        status = None if enabled is None else ENABLED if enabled else DISABLED
        info = UserInfo(name, password, kind, status)
        await self._tell(codes.AUTH_UPDATE_USER, UserName(name), info.encode())

    async def delete_user(self, name: str) -> None:
        """Delete a user and its access list."""
        await self._tell(codes.AUTH_DELETE_USER, UserName(name))

    async def permissions(self, user: str = "", resource: str = "") -> dict[str, list[AclInfo]]:
        """The access lists of each master, by broker name, filtered by substrings: subjects that
        contain `user`, entries whose resource contains `resource`."""
        header = AclFilter(user or None, resource or None)
        return await self._lists(codes.AUTH_LIST_ACL, header, AclInfo)

    async def allow(
        self,
        user: str,
        resources: str | Iterable[str],
        actions: str | Iterable[str],
        *,
        source_ips: Iterable[str] = (),
        deny: bool = False,
    ) -> None:
        """Allow a user these actions (Pub, Sub, Create, Update, Delete, Get, List, All) on these
        resources (`Topic:orders`, `Group:shop*`, `*`), or forbid them with `deny`.

        Replaces the entry for the same resource; `disallow` removes it.
        """
        given, decision = list(source_ips) or None, "Deny" if deny else "Allow"
        wanted = _listed(actions)
        entries = [PolicyEntryInfo(one, wanted, given, decision) for one in _listed(resources)]
        info = AclInfo(f"User:{user}", [PolicyInfo(entries=entries)])
        await self._tell(codes.AUTH_CREATE_ACL, AclSubject(info.subject), info.encode())

    async def disallow(self, user: str, resources: str | Iterable[str] | None = None) -> None:
        """Remove the entries for these resources; with None, all entries of the user."""
        for resource in [None] if resources is None else _listed(resources):
            header = AclResource(f"User:{user}", resource=resource)
            await self._tell(codes.AUTH_DELETE_ACL, header)

    async def _lists(self, code: int, header: Header, kind: type[Info]) -> dict[str, list[Info]]:
        answers = await self._ask_each(await self.masters(), code, header)
        return {name: bodies_of(answer, kind, code) for name, answer in answers.items()}

    async def _tell(self, code: int, header: Header, body: bytes = b"") -> None:
        info = await self.cluster_info()
        addresses = {
            address: address
            for data in info.broker_addr_table.values()
            for address in data.broker_addrs.values()
        }
        await self._ask_each(addresses, code, header, body)


def _listed(texts: str | Iterable[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)
