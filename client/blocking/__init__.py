"""The client for code without an event loop; thread-safe.

Each object runs its asyncio client on an event loop in its own thread (`LoopThread`) and waits for
results. Every method may raise the errors of `client.errors`.

A name is imported when it is used for the first time, as in `aerobee.client`.
"""

from typing import TYPE_CHECKING

from ..base.first_use import on_first_use

if TYPE_CHECKING:
    from ..base.message import Message as Message
    from ..base.message_view import MessageView as MessageView
    from ..base.receipts import BatchReceipt as BatchReceipt
    from ..base.receipts import SendReceipt as SendReceipt
    from ..base.receipts import SendStatus as SendStatus
    from ..cluster.route import MessageQueue as MessageQueue
    from ..producer.broker_requests import TransactionState as TransactionState
    from ..pull.reader import Pulled as Pulled
    from .admin import Admin as Admin
    from .consumers import Consumer as Consumer
    from .consumers import LitePullConsumer as LitePullConsumer
    from .consumers import Processing as Processing
    from .consumers import PullConsumer as PullConsumer
    from .consumers import ReceivedMessage as ReceivedMessage
    from .consumers import SimpleConsumer as SimpleConsumer
    from .producers import Producer as Producer
    from .producers import TransactionProducer as TransactionProducer
    from .reader import Reader as Reader

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

__all__ = list(_MODULES)
__getattr__, __dir__ = on_first_use(__name__, _MODULES)
