"""etcd as a controller asks it: leases, ranges of keys and transactions, by its JSON gateway (/v3).

Each request goes to one endpoint, and after a failure to the next one. In etcd's JSON, keys and
values are base64, 64-bit numbers are texts, and false, 0 and empty values are absent.
"""

import base64
import binascii
import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec

from ..protocol.errors import reason_of
from ..protocol.security.secret_mode import fault_of
from ..store.base.errors import StoreError
from .etcd_settings import EtcdSettings

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 32 << 20
ERROR_CHARS_MAX = 200  # of what an endpoint says, in our messages
KEYS_A_PAGE = 100
OLD_TOKEN = ("invalid auth token", "revision of auth store is old", "user name is empty")

Kind = TypeVar("Kind")


class EtcdError(StoreError):
    """etcd did not do what it was asked, and may still do it later."""


class Entry(NamedTuple):
    """A key with its value, the revisions that made and changed it, and its lease (0: none)."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class Same(NamedTuple):
    """A condition: a number of a key is the same as it was. A key that is absent has 0 everywhere.

    `target` is CREATE, MOD or LEASE.
    """

    key: bytes
    target: str
    number: int


class Done(NamedTuple):
    """A transaction's outcome. If it was not done: what the keys of its conditions hold."""

    is_done: bool
    revision: int
    found: dict[bytes, Entry]


class _Header(msgspec.Struct):
    revision: str = "0"


class _KeyValue(msgspec.Struct):
    key: str
    value: str = ""
    create_revision: str = "0"
    mod_revision: str = "0"
    lease: str = "0"


class _Range(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    kvs: list[_KeyValue] = []
    more: bool = False


class _OneResponse(msgspec.Struct):
    response_range: _Range | None = None


class _Txn(msgspec.Struct):
    header: _Header
    succeeded: bool = False
    responses: list[_OneResponse] = []


class _Lease(msgspec.Struct):
    ID: str = "0"
    TTL: str = "0"


class _KeptAlive(msgspec.Struct):
    result: _Lease


class _Token(msgspec.Struct):
    token: str


class _Fault(msgspec.Struct):
    message: str = ""
    error: str = ""


class _TokenIsOld(Exception):
    """The token of user and password is not valid any more."""


class EtcdGateway:
    """The members of one etcd cluster. Each request raises EtcdError with one sentence."""

    def __init__(self, settings: EtcdSettings) -> None:
        self.endpoints = settings.endpoints
        self._timeout_s = settings.controller_etcd_timeout_mills / 1_000
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._token = ""
        self._first = 0  # the endpoint to ask first: the one that answered last

    def open(self) -> None:
        """Read the certificates. StoreError when one can't be read."""
        if any(endpoint.startswith("https:") for endpoint in self.endpoints):
            self._tls = _tls(self._settings)
        elif self._settings.controller_etcd_user:
            log.warning("the password of controllerEtcdUser goes to etcd without TLS; use https://")

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # --- requests -------------------------------------------------------------------------------

    async def grant(self, seconds: int) -> int:
        """A new lease that lasts `seconds`; its id."""
        found = await self._ask("lease/grant", {"TTL": str(seconds)}, _Lease)
        return _number(found.ID)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; the seconds until it ends, 0 when there is no such lease any more."""
        found = await self._ask("lease/keepalive", {"ID": str(lease)}, _KeptAlive)
        return _number(found.result.TTL)

    async def revoke(self, lease: int) -> None:
        """End a lease; its keys are deleted."""
        await self._ask("lease/revoke", {"ID": str(lease)}, dict)

    async def get(self, key: bytes) -> Entry | None:
        """A key, or None if it is absent."""
        found = await self._ask("kv/range", {"key": _text(key)}, _Range)
        return next(map(_entry, found.kvs), None)

    async def page(
        self, first: bytes, end: bytes, revision: int = 0
    ) -> tuple[list[Entry], int, bool]:
        """The first `KEYS_A_PAGE` keys of [first, end), as of a revision (0: the newest).

        Returns them, the revision, and whether there are more.
        """
        asked = {
            "key": _text(first),
            "range_end": _text(end),
            "limit": str(KEYS_A_PAGE),
            "revision": str(revision),
        }
        found = await self._ask("kv/range", asked, _Range)
        return [_entry(one) for one in found.kvs], _number(found.header.revision), found.more

    async def put_if(
        self, conditions: Sequence[Same], key: bytes, value: bytes, lease: int = 0
    ) -> Done:
        """Put a key if all conditions hold, in one transaction."""
        put = {"key": _text(key), "value": _text(value), "lease": str(lease)}
        return await self._transaction(conditions, {"request_put": put})

    async def delete_if(self, conditions: Sequence[Same], key: bytes) -> Done:
        """Delete a key if all conditions hold, in one transaction."""
        return await self._transaction(conditions, {"request_delete_range": {"key": _text(key)}})

    async def _transaction(
        self, conditions: Sequence[Same], change: dict[str, dict[str, str]]
    ) -> Done:
        # An endpoint that is silent may still do it, so no other one is asked: see `_ask`.
        keys = list(dict.fromkeys(one.key for one in conditions))
        asked = {
            "compare": [_compare(one) for one in conditions],
            "success": [change],
            "failure": [{"request_range": {"key": _text(key)}} for key in keys],
        }
        found = await self._ask("kv/txn", asked, _Txn, once=True)
        ranges = [one.response_range for one in found.responses if one.response_range is not None]
        entries = [_entry(one) for each in ranges for one in each.kvs]
        revision = _number(found.header.revision)
        return Done(found.succeeded, revision, {one.key: one for one in entries})

    # --- endpoints ------------------------------------------------------------------------------

    async def _ask(
        self, path: str, asked: Mapping[str, object], kind: type[Kind], *, once: bool = False
    ) -> Kind:
        """Ask the endpoints in turn until one answers; with `once` stop where the outcome of a
        request is unknown."""
        faults = []
        for step in range(len(self.endpoints)):
            number = (self._first + step) % len(self.endpoints)
            endpoint = self.endpoints[number]
            try:
                found = _decoded(await self._ask_endpoint(endpoint, path, asked), kind)
            except aiohttp.ClientConnectorError as wrong:  # it was not sent
                faults.append(f"{endpoint}: {reason_of(wrong)}")
            except TimeoutError:
                faults.append(f"{endpoint}: no answer within {self._timeout_s:g} s")
                if once:
                    break
            except (EtcdError, aiohttp.ClientError, OSError) as wrong:
                faults.append(f"{endpoint}: {reason_of(wrong)}")
                if once:
                    break
            else:
                self._first = number
                return found
        self._first = (number + 1) % len(self.endpoints)
        raise EtcdError(
            f"etcd did not answer {path}: {'; '.join(faults)}; see that most of etcd's members run "
            "and that controllerEtcdEndpoints names them"
        )

    async def _ask_endpoint(self, endpoint: str, path: str, asked: Mapping[str, object]) -> bytes:
        """One request; where the token is old, with a new one."""
        if self._settings.controller_etcd_user and not self._token:
            await self._log_in(endpoint)
        try:
            return await self._post(endpoint, path, asked, self._token)
        except _TokenIsOld:
            await self._log_in(endpoint)
        try:
            return await self._post(endpoint, path, asked, self._token)
        except _TokenIsOld as wrong:
            raise EtcdError(str(wrong)) from None

    async def _log_in(self, endpoint: str) -> None:
        settings = self._settings
        if not settings.controller_etcd_user:
            raise EtcdError("it wants a user; set controllerEtcdUser and controllerEtcdPassword")
        asked: Mapping[str, object] = {
            "name": settings.controller_etcd_user,
            "password": settings.controller_etcd_password,
        }
        found = await self._post(endpoint, "auth/authenticate", asked, "")
        self._token = _decoded(found, _Token).token

    async def _post(
        self, endpoint: str, path: str, asked: Mapping[str, object], token: str
    ) -> bytes:
        """The body of the answer. EtcdError for an error, aiohttp's errors without an answer."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout)
        async with self._session.post(
            f"{endpoint}/v3/{path}",
            data=msgspec.json.encode(asked),
            headers={"Authorization": token} if token else {},
            ssl=self._tls or True,
            allow_redirects=False,
        ) as answer:
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise EtcdError(
                        f"its answer has more than {ANSWER_BYTES_MAX} bytes, which is the limit; "
                        "see what other programs keep under controllerEtcdPrefix"
                    )
            if answer.status == 200:
                return bytes(body)
            text = _fault(bytes(body))
            if any(one in text for one in OLD_TOKEN):
                raise _TokenIsOld(text)
            raise EtcdError(f"it answered {answer.status} {text}")


def _tls(settings: EtcdSettings) -> ssl.SSLContext:
    """The trust and the certificate of a controller that asks etcd."""
    ca, cert = settings.controller_etcd_ca_path, settings.controller_etcd_cert_path
    key, path, why = settings.controller_etcd_key_path, ca, ""
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            path = f"{cert} or {key}"
            context.load_cert_chain(cert, key)
            why = fault_of(key, os.stat(key).st_mode)
    except (OSError, ValueError) as wrong:  # ssl.SSLError is an OSError
        raise StoreError(
            f"{path} can't be used for TLS with etcd: {reason_of(wrong)}; set controllerEtcdCaPath,"
            " controllerEtcdCertPath and controllerEtcdKeyPath to files in PEM"
        ) from None
    if why:
        raise StoreError(f"controllerEtcdKeyPath: {why}")
    return context


def _compare(one: Same) -> dict[str, str]:
    field = {"CREATE": "create_revision", "MOD": "mod_revision", "LEASE": "lease"}[one.target]
    return {
        "key": _text(one.key),
        "target": one.target,
        "result": "EQUAL",
        field: str(one.number),
    }


def _entry(found: _KeyValue) -> Entry:
    try:
        key, value = (base64.b64decode(text, validate=True) for text in (found.key, found.value))
    except binascii.Error as wrong:
        raise EtcdError(f"etcd's answer has a key or a value that is no base64: {wrong}") from None
    numbers = (found.create_revision, found.mod_revision, found.lease)
    return Entry(key, value, *map(_number, numbers))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _number(text: str) -> int:
    try:
        return int(text[:20])
    except ValueError:
        raise EtcdError(f"etcd's answer has {text[:40]!r} in the place of a number") from None


def _decoded(body: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as wrong:
        shown = body[:80].decode(errors="replace")
        raise EtcdError(
            f"it answers {shown!a}, which is no answer of etcd's JSON gateway ({wrong}); "
            "see that it is the client port of etcd 3.4 or newer"
        ) from None


def _fault(body: bytes) -> str:
    """The text of an error response, in one line."""
    try:
        found = msgspec.json.decode(body, type=_Fault)
        text = found.message or found.error
    except msgspec.MsgspecError:
        text = body[:ERROR_CHARS_MAX].decode(errors="replace")
    return " ".join(text.split())[:ERROR_CHARS_MAX]
