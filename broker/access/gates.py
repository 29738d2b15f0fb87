"""The gates that requests pass before their handlers: the one way to everything that a broker does.

A row of the request table names its gates. `RequestGates` knows which of them stand in this
broker's role, and decides that once, when the table is made: a row without a gate is served
directly. The order is: audit log, access control, a slave's refusal, the gates of the row.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import wraps
from typing import Any, NamedTuple, NoReturn

from ...protocol import codes
from ...protocol.aio.audit import AuditLog
from ...protocol.aio.connection import Connection, Handler, Row
from ...protocol.aio.guard import Guard
from ...protocol.command import Command
from ...protocol.errors import Refusal


class Gate(Enum):
    """The gates of rows, besides those of slaves."""

    AUTHORITY = auto()  # a master in controller mode takes changes only with authority
    LOCKS = auto()  # only one broker of a name locks queues
    RELAYED = auto()  # what comes to a slave is told to its living master as well
    TIMED = auto()  # the time until the response is a metric


class OnSlave(NamedTuple):
    """The answer of a slave: `code`, and a remark with `why` and the master's address.

    The codes are those of a Java slave. Where a Java slave accepts a change that its next
    synchronization undoes, or delivers messages without keeping account, ours refuses.
    """

    code: int
    why: str


# Java's answer where a processor takes nothing at all; its clients then try another broker.
_BUSY = OnSlave(codes.SYSTEM_BUSY, "[REJECTREQUEST]this broker is a slave, which takes no messages")
_NOT_AVAILABLE = codes.SLAVE_NOT_AVAILABLE

# The gates of rows. A send is stopped by the store, which takes nothing without authority.
SEND = (_BUSY,)
SEND_BACK = (_BUSY, Gate.AUTHORITY)
TRANSACTION = (
    OnSlave(_NOT_AVAILABLE, "this broker is a slave, which ends no transactions"),
    Gate.AUTHORITY,
)
RECALL = (OnSlave(_NOT_AVAILABLE, "recall failed: this broker is a slave"), Gate.AUTHORITY)
POP = (
    OnSlave(_NOT_AVAILABLE, "this broker is a slave, which can't note what is popped"),
    Gate.AUTHORITY,
)
CHANGE = (
    OnSlave(
        codes.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from "
        "master broker",
    ),
    Gate.AUTHORITY,
)
TIMED_CHANGE = (*CHANGE, Gate.TIMED)
RESET = (OnSlave(codes.SYSTEM_ERROR, "Can not reset offset in slave broker"), Gate.AUTHORITY)
LOCK = (Gate.AUTHORITY, Gate.LOCKS)
UNLOCK = (Gate.AUTHORITY,)
PROGRESS = (Gate.AUTHORITY, Gate.RELAYED)

Around = Callable[[Handler], Handler]  # a handler that does more
Why = Callable[[], str | None]  # why requests are refused at this moment, None while they pass


@dataclass(slots=True)
class RequestGates:
    """The gates of one broker, None for each that it doesn't have in its role.

    `authority` says why a master takes no changes, `locks` why no queue is locked; `master` is
    the address of a slave's master, "" when not known. `relayed` makes a handler relay the request
    to the master, `timed` makes it note its time.
    """

    timed: Around
    audit: AuditLog | None = None
    guard: Guard | None = None
    master: Callable[[], str] | None = None
    authority: Why | None = None
    locks: Why | None = None
    relayed: Around | None = None

    def table(self, rows: Iterable[Row]) -> dict[int, Row]:
        """The request table by code: of two rows with one code the later."""
        found = {row.code: self._gated(row) for row in rows}
        if self.guard is not None:
            found = self.guard.guarded(found)
        return found if self.audit is None else self.audit.watch(found)

    # --- inside ---------------------------------------------------------------------------------

    def _gated(self, row: Row) -> Row:
        if self.master is not None:
            for gate in row.gates:
                if isinstance(gate, OnSlave):
                    return _refusing(row, gate, self.master)
        for gate, around in ((Gate.TIMED, self.timed), (Gate.RELAYED, self.relayed)):
            if gate in row.gates and around is not None:
                row = replace(row, handler=around(row.handler))
        refusals = [
            refusal
            for gate, refusal in ((Gate.AUTHORITY, self.authority), (Gate.LOCKS, self.locks))
            if gate in row.gates and refusal is not None
        ]
        return _passing(row, refusals) if refusals else row


def _passing(row: Row, refusals: list[Why]) -> Row:
    """The row behind gates that may be closed."""
    handler = row.handler

    @wraps(handler)
    def check_first(header: Any, command: Command, connection: Connection) -> Any:
        for refusal in refusals:
            why = refusal()
            if why is not None:
                raise Refusal(codes.SERVICE_NOT_AVAILABLE, why)
        return handler(header, command, connection)

    return replace(row, handler=check_first)


def _refusing(row: Row, gate: OnSlave, master: Callable[[], str]) -> Row:
    """The row as a slave has it."""

    @wraps(row.handler)
    def refuse(header: Any, command: Command, connection: Connection) -> NoReturn:
        where = master()
        instead = f"its master is {where}" if where else "its master is not known at the moment"
        raise Refusal(gate.code, f"{gate.why}; {instead}, take it there")

    return replace(row, header=None, handler=refuse, hot=False, bulk=False)
