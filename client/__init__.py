"""The asyncio client: producers, consumers, administration.

`aerobee.client.blocking` has the same for code without an event loop, `aerobee.client.errors` what
can go wrong. A name is imported when it is used for the first time: a program that only reads does
not load what sends.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Each name and the module that has it.
_MODULES = {
    "Admin": "admin",
    "BatchReceipt": "receipts",
    "ConsumeSettings": "consuming.concurrent",
    "Consumer": "consumer",
    "Context": "consuming.listening",
    "Limits": "consuming.process_queue",
    "LitePullConsumer": "lite_pull",
    "LitePullSettings": "consuming.lite_pulling",
    "Message": "message",
    "MessageQueue": "route",
    "MessageView": "received",
    "Outcome": "consuming.listening",
    "PopSettings": "consuming.popped_queues",
    "PoppedMessage": "simple",
    "Producer": "producer",
    "PullConsumer": "pull_consumer",
    "PullSettings": "consuming.pull",
    "ReceivedMessage": "received",
    "Security": "security",
    "SendReceipt": "receipts",
    "SendStatus": "receipts",
    "SimpleConsumer": "simple",
    "TransactionProducer": "transactions",
    "TransactionState": "producer_calls",
    "by_sql": "consuming.subscriptions",
    "by_tag": "consuming.subscriptions",
    "errors": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no {name}; it has {', '.join(__all__)}")
    module = import_module(f".{_MODULES[name]}", __name__)
    found = module if name == "errors" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
