"""The requests that a master without authority refuses (see `authority`).

Sends are refused by the store, which takes no more messages. Here are the other requests that
change something. Reads go on; the offset that a pull commits is not taken.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers.pull import COMMIT_OFFSET, PullMessage
from ..replication.slave_requests import REFUSED

GUARDED = (
    REFUSED.keys() | {codes.LOCK_BATCH_MQ, codes.UNLOCK_BATCH_MQ, codes.UPDATE_CONSUMER_OFFSET}
) - {codes.SEND_MESSAGE, codes.SEND_MESSAGE_V2, codes.SEND_BATCH_MESSAGE}

PULLS = frozenset({codes.PULL_MESSAGE, codes.LITE_PULL_MESSAGE})


def guarded(rows: Mapping[int, Row], refusal: Callable[[], str | None]) -> dict[int, Row]:
    """This table as a master in controller mode has it. `refusal()` is why changes are refused at
    this moment, None while they are taken."""
    return {
        code: _guarded(row, refusal)
        if code in GUARDED
        else _reading(row, refusal)
        if code in PULLS
        else row
        for code, row in rows.items()
    }


def _reading(row: Row, refusal: Callable[[], str | None]) -> Row:
    handler = row.handler

    def pull(header: PullMessage, command: Command, connection: Connection) -> Any:
        if header.sys_flag & COMMIT_OFFSET and refusal() is not None:
            header = msgspec.structs.replace(header, sys_flag=header.sys_flag & ~COMMIT_OFFSET)
        return handler(header, command, connection)

    return Row(row.code, row.header, pull, row.access, row.hot, row.bulk)


def _guarded(row: Row, refusal: Callable[[], str | None]) -> Row:
    handler = row.handler

    def look_first(header: Any, command: Command, connection: Connection) -> Any:
        why = refusal()
        if why is not None:
            raise Refusal(codes.SERVICE_NOT_AVAILABLE, why)
        return handler(header, command, connection)

    return Row(row.code, row.header, look_first, row.access, row.hot, row.bulk)
