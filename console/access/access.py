"""All about access of one console: its sessions, its guard, its audit, and how visitors log in."""

import asyncio
import hashlib
import logging
import secrets
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web

from ...client.base.identity import monotonic
from ...client.errors import AerobeeError
from ..clusters.clusters import Watched
from ..texts import Text, TextError
from .attempts import Attempts
from .audit import Audit
from .cluster_users import ClusterUser, NotChecked, WrongSecret
from .guard import Guard
from .one_time_link import OneTimeLink
from .passwords import CHARS_MAX, is_right
from .reverse_proxy import ReverseProxy
from .rights import Right, Visitor
from .sessions import Session, Sessions
from .user_file import NAME_CHARS_MAX, User, UserFile

OWNER = "owner"  # the visitor of a one-time link
CHECKS_AT_ONCE = 2  # of passwords, each with 32 MiB
CHECKS_WAITING = 20
CLUSTER_SESSIONS_MAX = 100
RULES_SECONDS = 60.0  # after that the brokers are asked again

log = logging.getLogger(__name__)


class Refused(TextError):
    """A login that failed. It does not say which part of it was wrong."""

    status = 401

    def __init__(self) -> None:
        super().__init__(
            Text("name and password do not fit; try again, or ask an administrator of this console")
        )


class Busy(TextError):
    """More logins than can be checked."""

    status = 503


class Unknown(TextError):
    """A proxy named a visitor that may not log in: the name, and what to do."""

    status = 403


class Proved(NamedTuple):
    """The proof of a user of a cluster: when its brokers were asked."""

    at: float


class ByHeader(NamedTuple):
    """A session's proof: the name in the proxy's header, and what the file says of it."""

    name: str
    user: User | None


class Access:
    """The visitors of the console and their rights; with `is_read_only` they may only view.

    Visitors log in as `users` of a file, as users of one of the `clusters`, or by the header of a
    reverse proxy; without all of these by a one-time link. `is_secure`: browsers reach the console
    by https. `clock` gives seconds."""

    def __init__(
        self,
        audit: Audit,
        *,
        users: UserFile | None = None,
        reverse_proxy: ReverseProxy | None = None,
        clusters: Mapping[str, Watched] | None = None,
        is_secure: bool = False,
        hosts: Iterable[str] = (),
        is_read_only: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.audit = audit
        self.is_read_only = is_read_only
        self.users = users
        self.reverse_proxy = reverse_proxy
        self.clusters = clusters
        self.sessions = Sessions(clock=clock, on_end=self._ended)
        self.guard = Guard(self.sessions, hosts=hosts, is_secure=is_secure)
        self.has_passwords = users is not None or clusters is not None
        self.has_header = reverse_proxy is not None and bool(reverse_proxy.header)
        has_users = self.has_passwords or self.has_header
        self.link = None if has_users else OneTimeLink(clock)
        self._clock = clock
        self._closing: set[asyncio.Task[None]] = set()
        self._attempts = Attempts(clock)
        self._checking = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._waiting = 0
        self._key = secrets.token_bytes(32)
        self._by_script: dict[bytes, str] = {}

    def session_of(self, request: web.Request) -> Session | None:
        """The session of a request, None without one. A user that was changed or removed has
        none."""
        session = self.guard.session_of(request)
        if session is None:
            return None
        if not self._holds(session.proof, request):
            self.sessions.end_where(lambda one: one is session)
            return None
        return session

    def _holds(self, proof: object, request: web.Request) -> bool:
        """True if the proof of a login is still valid."""
        match proof:
            case User():
                return self._user(proof.name) == proof
            case ByHeader():
                name = "" if self.reverse_proxy is None else self.reverse_proxy.name_in(request)
                return name == proof.name and self._user(name) == proof.user
        return True

    def check_peer(self, request: web.Request) -> None:
        """HTTPForbidden for a connection that passes by the proxy."""
        if self.reverse_proxy is not None:
            self.reverse_proxy.check(request)

    def address_of(self, request: web.Request) -> str:
        """The address that a request comes from."""
        if self.reverse_proxy is None:
            return request.remote or ""
        return self.reverse_proxy.address_of(request)

    def by_header(self, request: web.Request) -> str | None:
        """The id of a new session for the visitor that a proxy names, None without a name. Unknown
        for one that may not log in."""
        name = "" if self.reverse_proxy is None else self.reverse_proxy.name_in(request)
        if not name or self.reverse_proxy is None:
            return None
        user = self._user(name)
        if len(name) > NAME_CHARS_MAX or (self.users is not None and user is None):
            raise Unknown(
                "%(name)s is no user of this console; an administrator can add the name "
                "(aerobee console user add NAME --no-password)",
                name=f"{name[:NAME_CHARS_MAX]!r}",
            )
        address = self.address_of(request)
        visitor = (
            user.visitor(address)
            if user
            else Visitor(name, self.reverse_proxy.right, address=address)
        )
        return self._open(visitor, ByHeader(name, user))

    def by_link(self, word: str, address: str) -> str | None:
        """The id of a new session for the one-time link, None when the link is void."""
        if self.link is None or not self.link.take(word):
            return None
        return self._open(Visitor(OWNER, Right.ADMINISTER, address=address))

    async def log_in(self, name: str, password: str, address: str, cluster: str = "") -> str:
        """The id of a new session; `cluster` is where the user is known, for users of clusters.
        Refused, TooMany, Busy or NotChecked otherwise; AerobeeError when brokers don't answer."""
        self._attempts.begin(address, name)
        if self._waiting >= CHECKS_WAITING:
            raise Busy(
                "%(count)s logins wait to be checked, which is the limit; try again in some "
                "seconds",
                count=self._waiting,
            )
        self._waiting += 1
        try:
            async with self._checking:
                if self.clusters is not None:
                    session = await self._by_cluster(name, password, address, cluster)
                else:
                    session = await self._by_password(name, password, address)
        finally:
            self._waiting -= 1
        self._attempts.succeeded(address, name)
        return session

    async def _by_password(self, name: str, password: str, address: str) -> str:
        user = None if self.users is None else self.users.find(name[: NAME_CHARS_MAX + 1])
        kept = None if user is None else user.password
        fits = await asyncio.to_thread(is_right, password[:CHARS_MAX], kept)
        if user is None or not fits or len(password) > CHARS_MAX:
            raise Refused
        return self._open(user.visitor(address), user)

    async def _by_cluster(self, name: str, secret: str, address: str, cluster: str) -> str:
        assert self.clusters is not None
        watched = self.clusters.get(cluster or next(iter(self.clusters)))
        if watched is None or not name or not secret or len(name) > NAME_CHARS_MAX:
            raise Refused
        if len(self.sessions) >= CLUSTER_SESSIONS_MAX:
            self.sessions.sweep()
        if len(self.sessions) >= CLUSTER_SESSIONS_MAX:
            raise Busy(
                "%(count)s sessions have connections of their own, which is the limit; "
                "log out elsewhere",
                count=len(self.sessions),
            )
        user = ClusterUser(watched, name, secret)
        try:
            visitor = await user.prove(address)
        except WrongSecret:
            raise Refused from None
        await user.start()
        return self._open(visitor, Proved(self._clock()), user)

    async def renew(self, session: Session) -> bool:
        """True if a session may go on.

        A cluster's user is proved again every RULES_SECONDS, and the rules are read again. While
        brokers don't answer the rules stay as they were.
        """
        user, proof = session.signed, session.proof
        if not isinstance(user, ClusterUser) or not isinstance(proof, Proved):
            return True
        if self._clock() - proof.at < RULES_SECONDS:
            return True
        session.proof = Proved(self._clock())
        try:
            session.visitor = self._most(await user.prove(session.visitor.address))
        except (WrongSecret, NotChecked):
            self.sessions.end_where(lambda one: one is session)
        except AerobeeError as wrong:
            log.warning("the rules of %s stay as they were: %s", user.name, wrong)
        return not session.is_over

    async def stop(self) -> None:
        """End all sessions, and close their connections."""
        self.sessions.end_where(lambda session: True)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _ended(self, session: Session) -> None:
        if isinstance(session.signed, ClusterUser):
            task = asyncio.ensure_future(session.signed.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def by_script(self, request: web.Request) -> Session | None:
        """The session of a program that sends name and password with each request; the check is
        made once. None for a request without them."""
        text = request.headers.get("Authorization")
        if text is None:
            return None
        name, password = _basic(text)
        text += "\n" + request.query.get("cluster", "") if self.clusters is not None else ""
        key = hashlib.blake2b(text.encode(errors="replace"), key=self._key).digest()
        session = self.sessions.find(self._by_script.get(key, ""))
        if session is None or not self._holds(session.proof, request):
            cluster = request.query.get("cluster", "")
            opened = await self.log_in(name, password, self.address_of(request), cluster)
            self._by_script = {
                one: kept
                for one, kept in self._by_script.items()
                if self.sessions.find(kept, is_visit=False) is not None
            }
            self._by_script[key] = opened
            session = self.sessions.find(opened)
        return session

    def _user(self, name: str) -> User | None:
        return None if self.users is None else self.users.find(name)

    def _open(self, visitor: Visitor, proof: object = None, signed: object = None) -> str:
        return self.sessions.open(self._most(visitor), proof=proof, signed=signed)

    def _most(self, visitor: Visitor) -> Visitor:
        return replace(visitor, right=Right.VIEW) if self.is_read_only else visitor


def _basic(text: str) -> tuple[str, str]:
    """Name and password of a header Authorization; Refused for anything else."""
    kind, _, word = text.partition(" ")
    try:
        name, colon, password = b64decode(word.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise Refused from None
    if kind.lower() != "basic" or not colon:
        raise Refused
    return name, password
