"""The asyncio client: producers, consumers, administration.

`aerobee.client.blocking` has the same for code without an event loop, `aerobee.client.errors` what
can go wrong.
"""

from . import errors
from .admin import Admin
from .consumer import Consumer
from .message import Message
from .producer import Producer
from .receipts import BatchReceipt, SendReceipt, SendStatus
from .received import ReceivedMessage
from .route import MessageQueue

__all__ = [
    "Admin",
    "BatchReceipt",
    "Consumer",
    "Message",
    "MessageQueue",
    "Producer",
    "ReceivedMessage",
    "SendReceipt",
    "SendStatus",
    "errors",
]
