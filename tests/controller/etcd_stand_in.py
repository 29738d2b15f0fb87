"""A stand-in for one etcd: its JSON gateway over a dict, with leases that end by the test's clock.

It serves what the controllers use, as etcd 3.4.23 answers it: revisions, comparisons of
transactions, pages, leases, users. It has two URLs for the same keys; a test can silence each.
`at_txn` runs before each transaction is done, `after_txn` before its answer goes out.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ..clocks import Clock

NUMBERS = {"CREATE": "create_revision", "MOD": "mod_revision", "LEASE": "lease"}
Hook = Callable[[], Awaitable[None]]


@dataclass
class Key:
    value: str
    create_revision: int
    mod_revision: int
    lease: int

    def shown(self, key: bytes) -> dict[str, str]:
        numbers = {
            "create_revision": self.create_revision,
            "mod_revision": self.mod_revision,
            "lease": self.lease,
        }
        texts = {name: str(number) for name, number in numbers.items() if number}
        return {"key": base64.b64encode(key).decode(), "value": self.value, **texts}


async def nothing() -> None:
    """No hook."""


class EtcdStandIn:
    """Start it, give its `url` to controllers, stop it."""

    def __init__(self, clock: Clock, user: tuple[str, str] | None = None) -> None:
        self.clock = clock
        self.keys: dict[bytes, Key] = {}
        self.revision = 1
        self.leases: dict[int, tuple[int, int]] = {}  # id to seconds and the end in ms
        self.next_lease = 1_000
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.ports = [0, 0]
        self.silent: set[int] = set()  # the numbers of URLs that answer nothing
        self.at_txn: Hook = nothing
        self.after_txn: Hook = nothing
        self.user = user
        self.token = ""
        self.logins = 0
        self.raw: web.Response | None = None  # the answer to everything
        self._ended = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    async def start(self) -> None:
        """Listen; a second time on the same ports."""
        self._ended.clear()
        app = web.Application()
        app.router.add_post("/v3/{path:.+}", self._on)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        for port in self.ports:
            await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.ports = [address[1] for address in self._runner.addresses]

    async def stop(self) -> None:
        """End without losing keys or leases."""
        self._ended.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def wipe(self) -> None:
        """Lose everything; revisions begin again."""
        self.keys.clear()
        self.leases.clear()
        self.revision = 1

    def put(self, key: str, value: bytes) -> None:
        """As another program would."""
        self._put(key.encode(), base64.b64encode(value).decode(), 0)

    def values(self, prefix: str) -> dict[str, Any]:
        return {
            key.decode(): json.loads(base64.b64decode(one.value))
            for key, one in self.keys.items()
            if key.startswith(prefix.encode())
        }

    # --- requests -------------------------------------------------------------------------------

    async def _on(self, request: web.Request) -> web.Response:
        path, asked = request.match_info["path"], json.loads(await request.read())
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        if self.ports.index(port) in self.silent:
            await self._ended.wait()
        if self.raw is not None:
            return web.Response(body=self.raw.body, status=self.raw.status)
        self.asked.append((path, asked))
        self._end_leases()
        if path == "auth/authenticate":
            return self._authenticate(asked)
        if self.user is not None and request.headers.get("Authorization") != self.token:
            return _error(401, 16, "etcdserver: invalid auth token")
        if path == "kv/txn":
            await self.at_txn()
            self._end_leases()
            answer = self._txn(asked)
            await self.after_txn()
            return web.json_response(answer)
        handlers = {
            "lease/grant": self._grant,
            "lease/keepalive": self._keep_alive,
            "lease/revoke": self._revoke,
            "kv/range": self._range,
        }
        return web.json_response(handlers[path](asked))

    def _header(self) -> dict[str, str]:
        return {"cluster_id": "1", "revision": str(self.revision)}

    def _authenticate(self, asked: dict[str, str]) -> web.Response:
        if self.user is None:
            return _error(412, 9, "etcdserver: authentication is not enabled")
        if (asked["name"], asked["password"]) != self.user:
            message = "etcdserver: authentication failed, invalid user ID or password"
            return _error(400, 3, message)
        self.logins += 1
        self.token = f"token{self.logins}"
        return web.json_response({"header": self._header(), "token": self.token})

    def _grant(self, asked: dict[str, str]) -> dict[str, Any]:
        self.next_lease += 1
        seconds = int(asked["TTL"])
        self.leases[self.next_lease] = (seconds, self.clock.ms + seconds * 1_000)
        return {"header": self._header(), "ID": str(self.next_lease), "TTL": str(seconds)}

    def _keep_alive(self, asked: dict[str, str]) -> dict[str, Any]:
        number = int(asked["ID"])
        result = {"header": self._header(), "ID": str(number)}
        if number in self.leases:
            seconds = self.leases[number][0]
            self.leases[number] = (seconds, self.clock.ms + seconds * 1_000)
            result["TTL"] = str(seconds)
        return {"result": result}

    def _revoke(self, asked: dict[str, str]) -> dict[str, Any]:
        self._end_lease(int(asked["ID"]))
        return {"header": self._header()}

    def _range(self, asked: dict[str, str]) -> dict[str, Any]:
        first = base64.b64decode(asked["key"])
        end = base64.b64decode(asked.get("range_end", "")) or first + b"\0"
        found = [self.keys[key].shown(key) for key in sorted(self.keys) if first <= key < end]
        limit = int(asked.get("limit", "0")) or len(found)
        answer: dict[str, Any] = {"header": self._header()}
        if found:
            answer |= {"kvs": found[:limit], "count": str(len(found))}
        if len(found) > limit:
            answer["more"] = True
        return answer

    def _txn(self, asked: dict[str, Any]) -> dict[str, Any]:
        holds = all(self._holds(one) for one in asked.get("compare", []))
        responses: list[dict[str, Any]] = []
        for one in asked["success" if holds else "failure"]:
            if "request_put" in one:
                put = one["request_put"]
                self._put(base64.b64decode(put["key"]), put["value"], int(put["lease"]))
                responses.append({"response_put": {}})
            elif "request_delete_range" in one:
                self.revision += 1
                self.keys.pop(base64.b64decode(one["request_delete_range"]["key"]), None)
                responses.append({"response_delete_range": {}})
            else:
                responses.append({"response_range": self._range(one["request_range"])})
        answer: dict[str, Any] = {"header": self._header(), "responses": responses}
        return answer | ({"succeeded": True} if holds else {})

    def _holds(self, one: dict[str, str]) -> bool:
        field = NUMBERS[one["target"]]
        key = self.keys.get(base64.b64decode(one["key"]))
        number: int = 0 if key is None else getattr(key, field)
        return number == int(one[field])

    def _put(self, key: bytes, value: str, lease: int) -> None:
        assert not lease or lease in self.leases
        self.revision += 1
        old = self.keys.get(key)
        made = self.revision if old is None else old.create_revision
        self.keys[key] = Key(value, made, self.revision, lease)

    def _end_leases(self) -> None:
        for number in [one for one, (_, end) in self.leases.items() if self.clock.ms >= end]:
            self._end_lease(number)

    def _end_lease(self, number: int) -> None:
        self.leases.pop(number, None)
        for key in [key for key, one in self.keys.items() if one.lease == number]:
            self.revision += 1
            del self.keys[key]


def _error(status: int, code: int, message: str) -> web.Response:
    return web.json_response({"error": message, "message": message, "code": code}, status=status)
