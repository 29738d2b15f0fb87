"""The state of several controllers in etcd, and which of them leads.

    PREFIXleader           {"id":"n0","address":"host:port"}, under the leader's lease of 5 s
    PREFIXreplicas/NAME    {"version":1,"group":{...}}, one key for each broker name

The leader renews its lease each second. Every change is one transaction, which compares the
leader's key (its lease and the revision that made it) and the revision of the name's key. So etcd
refuses a change of a controller that does not lead any more, whatever that controller believes, and
a change of a state that it has not read. A new leader reads everything after it got the leader's
key: no change of an older leader can come later.

After a change with an unknown outcome the leader gives its lease back and begins again: with the
leader's key as it was, a late transaction has no effect.
"""

import asyncio
import copy
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from ..store.base.errors import StoreError
from .engine import Leading, NotLeaderError
from .etcd_gateway import Done, Entry, EtcdError, Same
from .replicas import Event, Groups, ReplicaGroup, apply
from .rules import NAMES_MAX

log = logging.getLogger(__name__)

LEASE_SECONDS = 5
TRUSTED_PART = 0.9  # of the lease; the rest is for clocks that run at different speeds
ROUND_SECONDS = 0.5  # between two reads of the leader's key
RENEW_SECONDS = 1.0
FORMAT_VERSION = 1


class Etcd(Protocol):
    """The requests of the engine to etcd: `EtcdGateway`, or a stand-in."""

    endpoints: list[str]

    def open(self) -> None: ...
    async def close(self) -> None: ...
    async def grant(self, seconds: int) -> int: ...
    async def keep_alive(self, lease: int) -> int: ...
    async def revoke(self, lease: int) -> None: ...
    async def get(self, key: bytes) -> Entry | None: ...
    async def page(
        self, first: bytes, end: bytes, revision: int = 0
    ) -> tuple[list[Entry], int, bool]: ...
    async def put_if(
        self, conditions: list[Same], key: bytes, value: bytes, lease: int = 0
    ) -> Done: ...
    async def delete_if(self, conditions: list[Same], key: bytes) -> Done: ...


class _Value(msgspec.Struct):
    version: int
    group: ReplicaGroup


class _LeaderValue(msgspec.Struct):
    id: str
    address: str


_value_decoder = msgspec.json.Decoder(_Value)
_leader_decoder = msgspec.json.Decoder(_LeaderValue)


class _Term:
    """One time of leading: its lease, the state as it was read and changed, and its end."""

    def __init__(self, lease: int, trusted_ms: float) -> None:
        self.lease = lease
        self.trusted_ms = trusted_ms  # until then etcd can't have ended the lease
        self.made_revision = 0  # of the leader's key
        self.groups: Groups = {}
        self.revisions: dict[str, int] = {}  # that changed the key of each name last
        self.is_over = asyncio.Event()
        self.why_over = ""


class EtcdEngine:
    """`controllerType=etcd`. `now_ms` is a monotonic clock in ms."""

    def __init__(self, etcd: Etcd, prefix: str, now_ms: Callable[[], int]) -> None:
        self.place = f"etcd {prefix} at {', '.join(etcd.endpoints)}"
        self.fault = ""
        self._etcd = etcd
        self._leader_key = f"{prefix}leader".encode()
        self._replicas = f"{prefix}replicas/".encode()
        self._now_ms = now_ms
        self._own = Leading()
        self._other = Leading()  # the leader, when it is not this controller
        self._term: _Term | None = None
        self._led: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False  # a library on the way may swallow a cancellation

    @property
    def groups(self) -> Groups:
        """The replicas of each broker name; empty while another controller leads."""
        return {} if self._term is None else self._term.groups

    @property
    def is_leader(self) -> bool:
        """True if this controller's lease holds for certain."""
        return self._term is not None and self._now_ms() < self._term.trusted_ms

    @property
    def leading(self) -> Leading:
        """The controller that leads, as far as this controller knows."""
        return self._own if self.is_leader else self._other

    def open(self) -> None:
        """Read the certificates. StoreError when one can't be read."""
        self._etcd.open()

    def begin(self, own: Leading, led: Callable[[], None]) -> None:
        """Become the leader when there is none; `led` is called each time."""
        self._own, self._led = own, led
        self._task = asyncio.get_running_loop().create_task(self._run(), name="etcd")

    async def close(self) -> None:
        """Give the lease back, so that another controller leads at once."""
        self._is_closing = True
        if self._term is not None:
            self._end(self._term, "it stops")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._etcd.close()

    async def store(self, events: tuple[Event, ...]) -> None:
        """Store the events of one broker name in one transaction, then apply them.

        NotLeaderError when this controller does not lead, StoreError when etcd does not answer or
        another program changed the name. After both this controller does not lead.
        """
        term = self._term
        if term is None or not self.is_leader:
            raise NotLeaderError(f"{self.leading.address or 'no controller'} leads")
        (name,) = {event.name for event in events}
        changed = {name: copy.deepcopy(term.groups[name])} if name in term.groups else {}
        for event in events:
            apply(changed, event)
        group = changed.get(name)
        key = self._replicas + name.encode()
        conditions = [*self._leads(term), Same(key, "MOD", term.revisions.get(name, 0))]
        try:
            if group is None:
                done = await self._etcd.delete_if(conditions, key)
            else:
                value = msgspec.json.encode(_Value(FORMAT_VERSION, group))
                done = await self._etcd.put_if(conditions, key, value)
        except EtcdError as wrong:
            self._end(term, f"the outcome of a change is unknown: {wrong}")
            raise
        if not done.is_done:
            self._refused(term, name, key, done)
        if group is None:
            term.groups.pop(name, None)
            term.revisions.pop(name, None)
        else:
            term.groups[name], term.revisions[name] = group, done.revision

    def _leads(self, term: _Term) -> list[Same]:
        """The conditions that this controller leads since the beginning of the term.

        The lease as well as the revision: in an etcd that was wiped revisions begin again.
        """
        key = self._leader_key
        return [Same(key, "CREATE", term.made_revision), Same(key, "LEASE", term.lease)]

    def _refused(self, term: _Term, name: str, key: bytes, done: Done) -> None:
        """Raise the reason why etcd refused a change."""
        leader, found = done.found.get(self._leader_key), done.found.get(key)
        own = term.made_revision, term.lease
        if leader is None or (leader.create_revision, leader.lease) != own:
            self._end(term, "its key in etcd is gone or another controller's")
            raise NotLeaderError("another controller leads, or none")
        why = (
            f"the key of {name} in etcd has revision {found.mod_revision if found else 0}, this "
            f"controller read {term.revisions.get(name, 0)}: another program changed it; let only "
            "controllers write under controllerEtcdPrefix"
        )
        self._end(term, why)
        raise StoreError(f"{why} (the state is read again)")

    def _end(self, term: _Term, why: str) -> None:
        """Stop leading at once; `_run` gives the lease back and begins again."""
        if self._term is term:
            self._term = None
        term.why_over = term.why_over or why
        term.is_over.set()

    # --- becoming and staying the leader --------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_closing:
            try:
                await self._round()
            except StoreError as wrong:
                self._other = Leading()
                self._tell(str(wrong))
            except Exception:
                log.exception("looking for the leader in etcd failed; it is tried again")
            await asyncio.sleep(ROUND_SECONDS)

    async def _round(self) -> None:
        """See which controller leads; if none does, lead until that is over."""
        found = await self._etcd.get(self._leader_key)
        if found is not None:
            other = _leader(found)
            if other != self._other:
                log.info("controller %s at %s leads", *other)
            self._other = other
            self._tell("")
            return
        self._other = Leading()
        await self._read_all(_Term(0, 0.0))  # what can't be read is no reason to take the lead
        asked_ms = self._now_ms()
        term = _Term(await self._etcd.grant(LEASE_SECONDS), _trusted_ms(asked_ms, LEASE_SECONDS))
        try:
            if await self._take_lead(term):
                await self._lead(term)
        finally:
            self._end(term, "this controller stops")
            with suppress(EtcdError):
                await self._etcd.revoke(term.lease)

    async def _take_lead(self, term: _Term) -> bool:
        """Put the leader's key if there is none; returns whether it was put."""
        key, own = self._leader_key, self._own
        value = msgspec.json.encode(_LeaderValue(own.controller_id, own.address))
        done = await self._etcd.put_if([Same(key, "CREATE", 0)], key, value, term.lease)
        term.made_revision = done.revision
        return done.is_done

    async def _lead(self, term: _Term) -> None:
        """Read the state and lead until the term is over."""
        await self._read_all(term)
        if term.is_over.is_set():
            return
        self._tell("")
        log.warning("this controller leads now, %d broker names", len(term.groups))
        self._term = term
        self._led()
        while not (term.is_over.is_set() or self._is_closing):
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await term.is_over.wait()
                    break
            await self._renew(term)
        log.warning("this controller does not lead any more: %s", term.why_over)

    async def _renew(self, term: _Term) -> None:
        """Renew the lease; end the term when it is gone, or could be."""
        asked_ms = self._now_ms()
        try:
            left = await self._etcd.keep_alive(term.lease)
        except EtcdError as wrong:
            if self._now_ms() >= term.trusted_ms:
                self._end(term, f"the lease could not be renewed: {wrong}")
            return
        if not left:
            self._end(term, "its lease in etcd is gone")
        else:
            term.trusted_ms = _trusted_ms(asked_ms, left)

    async def _read_all(self, term: _Term) -> None:
        """Read the replicas of all names, as of one revision. StoreError for what is not ours."""
        first, revision, more = self._replicas, 0, True
        end = self._replicas[:-1] + bytes([self._replicas[-1] + 1])
        while more:
            entries, revision, more = await self._etcd.page(first, end, revision)
            for entry in entries:
                group = self._group(entry)
                term.groups[group.name] = group
                term.revisions[group.name] = entry.mod_revision
            if len(term.groups) > NAMES_MAX:
                raise EtcdError(
                    f"etcd has more than {NAMES_MAX} broker names under {self._replicas!r}, which "
                    "is the limit; use another controllerEtcdPrefix for some of them"
                )
            more = more and bool(entries)
            if more:
                first = entries[-1].key + b"\0"
                if term.lease:
                    await self._renew(term)

    def _group(self, entry: Entry) -> ReplicaGroup:
        """The replicas in a key. StoreError for a key that no aerobee controller wrote."""
        try:
            found = _value_decoder.decode(entry.value)
            name = entry.key.removeprefix(self._replicas).decode()
        except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
            raise _foreign(entry, str(wrong)) from None
        if found.version != FORMAT_VERSION:
            why = f"it has version {found.version}, this aerobee reads {FORMAT_VERSION}"
            raise _foreign(entry, why)
        if found.group.name != name:
            raise _foreign(entry, f"it is about the broker name {found.group.name[:80]!a}")
        return found.group

    def _tell(self, fault: str) -> None:
        """Log a fault, unless it is the same as the last time."""
        if fault and fault != self.fault:
            log.error("%s; it is tried again, nobody is elected meanwhile", fault)
        self.fault = fault


def _leader(entry: Entry) -> Leading:
    try:
        found = _leader_decoder.decode(entry.value)
    except msgspec.MsgspecError as wrong:
        raise _foreign(entry, str(wrong)) from None
    return Leading(found.id, found.address)


def _foreign(entry: Entry, why: str) -> EtcdError:
    return EtcdError(
        f"etcd's key {entry.key[:200]!r} with the value {entry.value[:80]!r} is no controller's: "
        f"{why}; if another program wrote it, delete it (etcdctl del) or set controllerEtcdPrefix "
        "to a name of its own; if a newer aerobee did, start that one"
    )


def _trusted_ms(asked_ms: int, seconds: int) -> float:
    """Until when a lease surely holds that was granted or renewed after `asked_ms`."""
    return asked_ms + seconds * 1_000 * TRUSTED_PART
