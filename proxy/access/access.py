"""Access control of gRPC calls: the signature of a call proves its user, and the user's access list
says what it may do. The broker has both, and is asked with the proxy's own credentials.

The text of the time header is signed as it came, and clients write local times and different forms,
so its age can't be checked.
"""

import hashlib
import hmac
from typing import Any

from ...client.base.responses import body_of
from ...protocol import codes
from ...protocol.aio.audit import AuditLog
from ...protocol.aio.connection import host_text
from ...protocol.bodies.access import AclInfo, UserInfo
from ...protocol.headers.access import AclSubject, UserName
from ...protocol.security.policies import CUSTOM, Need, PolicyEntry, denial, entry_of
from ..http2.call import Call
from ..messages.status import Code, StatusError
from ..routes.brokers import Brokers
from ..routes.cache import Cache
from ..settings.config import ProxyConfig
from .needs import needs

Policies = dict[str, list[PolicyEntry]]

NAME_CHARS_MAX = 255
SHOWN_CHARS_MAX = 64


class Access:
    """Checks calls, if that is switched on."""

    def __init__(self, brokers: Brokers, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._is_on = config.authentication_enabled
        self._is_limited = config.authorization_enabled
        self._users: Cache[UserInfo | None] = Cache(
            self._load_user, config.user_cache_refresh_seconds
        )
        self._lists: Cache[Policies] = Cache(self._load_list, config.acl_cache_refresh_seconds)
        self.refused = 0
        self.audit: AuditLog | None = None

    async def check(self, name: str, call: Call, request: Any) -> None:
        """StatusError UNAUTHORIZED when this call of an RPC may not be served."""
        if not self._is_on:
            return
        try:
            user = await self._proven(call)
            if self._is_limited and not user.is_super:
                await self._check_needs(user, needs(name, request), call.peer[0])
        except StatusError as refusal:
            self.refused += 1
            if self.audit is not None:
                named = _user_of(call)
                self.audit.refused_call(named, host_text(call.peer), name, refusal.message)
            raise

    async def close(self) -> None:
        """Cancel the requests under way."""
        await self._users.close()
        await self._lists.close()

    async def _check_needs(self, user: UserInfo, wanted: list[Need], ip: str) -> None:
        name = user.username or ""
        policies = await self._lists.get(name) if wanted else {}
        for need in wanted:
            why = denial(policies, need, ip)
            if why is not None:
                raise _unauthorized(
                    f"User:{name} has no permission to access {need.kind}:{need.name} from {ip}, "
                    f"{why}"
                )

    async def _proven(self, call: Call) -> UserInfo:
        """The user that signed the call."""
        signed = call.metadata.get(b"x-mq-date-time")
        if signed is None:
            raise _unauthorized("datetime is null.")
        name, signature = credential_of(call.text(b"authorization"))
        user = await self._users.get(name)
        if user is None:
            raise _unauthorized(f"User:{ascii(name[:SHOWN_CHARS_MAX])[1:-1]} is not found.")
        if user.is_disabled:
            raise _unauthorized(f"User:{name} is disabled.")
        expected = hmac.digest((user.password or "").encode(), signed, hashlib.sha1).hex()
        if not hmac.compare_digest(expected.encode(), signature.lower().encode()):
            raise _unauthorized("check signature failed: it was not made with this user's password")
        return user

    async def _load_user(self, name: str) -> UserInfo | None:
        code = codes.AUTH_GET_USER
        answer = await self._brokers.ask_any(code, UserName(name))
        return body_of(answer, UserInfo, code) if answer.body else None

    async def _load_list(self, name: str) -> Policies:
        code = codes.AUTH_GET_ACL
        answer = await self._brokers.ask_any(code, AclSubject(f"User:{name}"))
        found: Policies = {}
        if answer.body:
            for policy in body_of(answer, AclInfo, code).policies or ():
                entries = found.setdefault(policy.policy_type or CUSTOM, [])
                entries += map(entry_of, policy.entries or ())
        return found


def _user_of(call: Call) -> str:
    """The user that a call names; empty where it names none."""
    try:
        return credential_of(call.text(b"authorization"))[0]
    except StatusError:
        return ""


def credential_of(header: str) -> tuple[str, str]:
    """User and signature (hex) in `MQv2-HMAC-SHA1 Credential=U/…, SignedHeaders=…, Signature=S`."""
    words = header.split(" ", 1)
    if len(words) != 2:
        raise _unauthorized("authentication header is incorrect.")
    found = {}
    for part in words[1].split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise _unauthorized("authentication keyValues length is incorrect.")
        found[key] = value
    name = found.get("Credential", "").partition("/")[0]
    if not name or len(name) > NAME_CHARS_MAX:
        raise _unauthorized("username cannot be null.")
    return name, found.get("Signature", "")


def _unauthorized(why: str) -> StatusError:
    return StatusError(Code.UNAUTHORIZED, why)
