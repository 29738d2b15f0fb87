"""The message store: RocketMQ's files on disk. No sockets, threads or asyncio.

For data people: `StoreView(folder)` reads a store that is in use or at rest.

    for batch in StoreView("aerobee-data").batches("orders", 0):
        ...  # a pyarrow.RecordBatch
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .view import MessagesGone as MessagesGone
    from .view import Piece as Piece
    from .view import StoreView as StoreView

__all__ = ["MessagesGone", "Piece", "StoreView"]


def __getattr__(name: str) -> Any:
    # Only now: where the store can't run, as on Windows, its errors can be imported all the same.
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no {name}; it has {', '.join(__all__)}")
    from . import view

    return getattr(view, name)
