"""Queue locks on their way to the broker of this name that gives them from now on."""

import asyncio
import logging

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.codec.frame import FRAME_BYTES_MAX
from .queue_locks import LockTable

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
RETRY_SECONDS = 0.1
BODY_BYTES_MAX = FRAME_BYTES_MAX - (64 << 10)


def handed_over(table: LockTable) -> bytes:
    """The locks as a body; empty when they are too many for one."""
    body = table.encode()
    if len(body) <= BODY_BYTES_MAX:
        return body
    log.warning(
        "%d locks are not handed over: they take %d bytes, the limit is %d; the next "
        "master gives locks once these have ended",
        len(table.locks), len(body), BODY_BYTES_MAX,
    )  # fmt: skip
    return b""


async def send_locks(peers: Peers, address: str, table: LockTable, seconds: float) -> None:
    """Hand the locks over to the broker at this address; tried for so long."""
    body = handed_over(table)
    if not body:
        return
    why = ""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    answer = await peers.request(
                        address, codes.HAND_OVER_QUEUE_LOCKS, None, body, ANSWER_SECONDS
                    )
                except (ConnectionError, TimeoutError) as wrong:
                    why = str(wrong)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if answer.code == codes.SUCCESS:
                    log.info("%d locks are handed over to %s", len(table.locks), address)
                    return
                why = f"it answers {answer.code} {answer.remark}"
                break
    except TimeoutError:
        pass
    log.warning("%s has not taken the locks of queues (%s): it waits for them", address, why)
