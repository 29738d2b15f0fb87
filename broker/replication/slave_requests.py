"""The requests that a slave refuses: writes into its log, and changes that belong to its master.

The table of requests is the master's with a refusal in the place of these handlers, so that a
master pays nothing for it. The codes are those of a Java slave. Where a Java slave accepts a change
that its next synchronization undoes, or delivers messages without keeping account, ours refuses.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import Command
from ...protocol.errors import Refusal

# Java's answer where a processor takes nothing at all; its clients then try another broker.
_BUSY = codes.SYSTEM_BUSY, "[REJECTREQUEST]this broker is a slave, which takes no messages"
_TRANSACTION = codes.SLAVE_NOT_AVAILABLE, "this broker is a slave, which ends no transactions"
_RECALL = codes.SLAVE_NOT_AVAILABLE, "recall failed: this broker is a slave"
_POP = codes.SLAVE_NOT_AVAILABLE, "this broker is a slave, which can't note what is popped"
_CHANGE = (
    codes.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master "
    "broker",
)
_RESET = codes.SYSTEM_ERROR, "Can not reset offset in slave broker"

REFUSED: dict[int, tuple[int, str]] = {
    codes.SEND_MESSAGE: _BUSY,
    codes.SEND_MESSAGE_V2: _BUSY,
    codes.SEND_BATCH_MESSAGE: _BUSY,
    codes.CONSUMER_SEND_MSG_BACK: _BUSY,
    codes.END_TRANSACTION: _TRANSACTION,
    codes.RESUME_CHECK_HALF_MESSAGE: _TRANSACTION,
    codes.RECALL_MESSAGE: _RECALL,
    codes.POP_MESSAGE: _POP,
    codes.ACK_MESSAGE: _POP,
    codes.BATCH_ACK_MESSAGE: _POP,
    codes.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    codes.NOTIFICATION: _POP,
    codes.UPDATE_AND_CREATE_TOPIC: _CHANGE,
    codes.UPDATE_AND_CREATE_TOPIC_LIST: _CHANGE,
    codes.UPDATE_AND_CREATE_STATIC_TOPIC: _CHANGE,
    codes.DELETE_TOPIC_IN_BROKER: _CHANGE,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _CHANGE,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _CHANGE,
    codes.DELETE_SUBSCRIPTIONGROUP: _CHANGE,
    codes.UPDATE_AND_GET_GROUP_FORBIDDEN: _CHANGE,
    codes.SET_MESSAGE_REQUEST_MODE: _CHANGE,
    codes.INVOKE_BROKER_TO_RESET_OFFSET: _RESET,
    codes.CLONE_GROUP_OFFSET: _RESET,
    # It takes the queues of topics that the table doesn't have, and that may be late.
    codes.CLEAN_UNUSED_TOPIC: _CHANGE,
}


def as_slave(rows: Mapping[int, Row], master: Callable[[], str]) -> dict[int, Row]:
    """This table as a slave has it. `master()` is where its master is, "" when not known."""
    return {
        code: row if code not in REFUSED else _refusing(row, *REFUSED[code], master)
        for code, row in rows.items()
    }


def _refusing(row: Row, code: int, why: str, master: Callable[[], str]) -> Row:
    def refuse(header: Any, command: Command, connection: Connection) -> NoReturn:
        where = master()
        instead = f"its master is {where}" if where else "its master is not known at the moment"
        raise Refusal(code, f"{why}; {instead}, take it there")

    return Row(row.code, None, refuse, row.access)
