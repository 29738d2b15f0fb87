"""The message store: RocketMQ's files on disk. No sockets, threads or asyncio.

For data people: `StoreView(folder)` reads a store that is in use or at rest.

    for batch in StoreView("aerobee-data").batches("orders"):
        ...  # a pyarrow.RecordBatch
"""

from typing import TYPE_CHECKING, Any

from .log.chunk import Chunk, MessagesGone

if TYPE_CHECKING:
    from .columns.view import StoreView

__all__ = ["Chunk", "MessagesGone", "StoreView"]


def __getattr__(name: str) -> Any:
    # Only now: a worker of Spark reads pulled records and needs none of the store's files.
    if name != "StoreView":
        raise AttributeError(f"module {__name__} has no {name}; it has {', '.join(__all__)}")
    from .columns.view import StoreView

    return StoreView
