"""A client belongs to the event loop in which it was started."""

import asyncio

from ..errors import ClientError


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the caller; None outside of any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def other_loop(own: asyncio.AbstractEventLoop) -> ClientError:
    """The error for a call from another loop than `own`: futures of one never wake the other."""
    state = "is closed" if own.is_closed() else "is another one than the caller's"
    return ClientError(
        f"the event loop in which this client was started {state}; start, use and close a client "
        "in one event loop, or take aerobee.client.blocking, which any thread may call"
    )
