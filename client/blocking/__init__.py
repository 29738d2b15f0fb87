"""The client for code without an event loop; thread-safe.

Each object runs its asyncio client on an event loop in its own thread (`LoopThread`) and waits for
results. Every method may raise the errors of `client.errors`.

A name is imported when it is used for the first time, as in `aerobee.client`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..base.message import Message
    from ..base.message_view import MessageView
    from ..base.receipts import BatchReceipt, SendReceipt, SendStatus
    from ..cluster.route import MessageQueue
    from ..producer.broker_requests import TransactionState
    from ..pull.reader import Pulled
    from .admin import Admin
    from .consumers import (
        Consumer,
        LitePullConsumer,
        Processing,
        PullConsumer,
        ReceivedMessage,
        SimpleConsumer,
    )
    from .producers import Producer, TransactionProducer
    from .reader import Reader

__all__ = [
    "Admin",
    "BatchReceipt",
    "Consumer",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "MessageView",
    "Processing",
    "Producer",
    "PullConsumer",
    "Pulled",
    "Reader",
    "ReceivedMessage",
    "SendReceipt",
    "SendStatus",
    "SimpleConsumer",
    "TransactionProducer",
    "TransactionState",
]

# Each name and the module that has it.
_MODULES = {
    "Admin": ".admin",
    "BatchReceipt": "..base.receipts",
    "Consumer": ".consumers",
    "LitePullConsumer": ".consumers",
    "Message": "..base.message",
    "MessageQueue": "..cluster.route",
    "MessageView": "..base.message_view",
    "Processing": ".consumers",
    "Producer": ".producers",
    "PullConsumer": ".consumers",
    "Pulled": "..pull.reader",
    "Reader": ".reader",
    "ReceivedMessage": ".consumers",
    "SendReceipt": "..base.receipts",
    "SendStatus": "..base.receipts",
    "SimpleConsumer": ".consumers",
    "TransactionProducer": ".producers",
    "TransactionState": "..producer.broker_requests",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no {name}; it has {', '.join(__all__)}")
    found = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
