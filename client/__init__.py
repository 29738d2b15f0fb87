"""The asyncio client: producers, consumers, administration.

`aerobee.client.blocking` has the same for code without an event loop, `aerobee.client.errors` what
can go wrong.
"""

from . import errors
from .admin import Admin
from .consumer import Consumer
from .consuming.concurrent import ConsumeSettings
from .consuming.listening import Context, Outcome
from .consuming.lite_pulling import LitePullSettings
from .consuming.popped_queues import PopSettings
from .consuming.process_queue import Limits
from .consuming.pull import PullSettings
from .consuming.subscriptions import by_sql, by_tag
from .lite_pull import LitePullConsumer
from .message import Message
from .producer import Producer
from .producer_calls import TransactionState
from .pull_consumer import PullConsumer
from .receipts import BatchReceipt, SendReceipt, SendStatus
from .received import MessageView, ReceivedMessage
from .route import MessageQueue
from .security import Security
from .simple import PoppedMessage, SimpleConsumer
from .transactions import TransactionProducer

__all__ = [
    "Admin",
    "BatchReceipt",
    "ConsumeSettings",
    "Consumer",
    "Context",
    "Limits",
    "LitePullConsumer",
    "LitePullSettings",
    "Message",
    "MessageQueue",
    "MessageView",
    "Outcome",
    "PopSettings",
    "PoppedMessage",
    "Producer",
    "PullConsumer",
    "PullSettings",
    "ReceivedMessage",
    "Security",
    "SendReceipt",
    "SendStatus",
    "SimpleConsumer",
    "TransactionProducer",
    "TransactionState",
    "by_sql",
    "by_tag",
    "errors",
]
