"""The message store: RocketMQ's files on disk. No sockets, threads or asyncio.

For data people: `StoreView(folder)` reads a store that is in use or at rest.

    for batch in StoreView("aerobee-data").batches("orders", 0):
        ...  # a pyarrow.RecordBatch
"""

from .view import MessagesGone, Piece, StoreView

__all__ = ["MessagesGone", "Piece", "StoreView"]
