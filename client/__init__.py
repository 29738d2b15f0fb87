"""The asyncio client: producers, consumers, administration.

`aerobee.client.blocking` offers the same classes to code without an event loop;
`aerobee.client.errors` lists the exceptions. Names are imported on first use, so a program that
only reads does not load the producer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .admin.admin import Admin
    from .base.message import Message
    from .base.message_view import MessageView
    from .base.receipts import BatchReceipt, SendReceipt, SendStatus
    from .base.security import Security
    from .cluster.route import MessageQueue
    from .group.process_queue import Limits
    from .group.pull import PullSettings
    from .group.received import ReceivedMessage
    from .group.subscriptions import by_sql, by_tag
    from .pop.simple import PoppedMessage, SimpleConsumer
    from .producer.broker_requests import TransactionState
    from .producer.producer import Producer
    from .producer.transactions import TransactionProducer
    from .pull.lite_pull import LitePullConsumer
    from .pull.lite_pulling import LitePullSettings
    from .pull.pull_consumer import PullConsumer
    from .push.concurrent import ConsumeSettings
    from .push.consumer import Consumer
    from .push.listening import Context, Outcome
    from .push.popped_queues import PopSettings

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
    "Admin": "admin.admin",
    "BatchReceipt": "base.receipts",
    "ConsumeSettings": "push.concurrent",
    "Consumer": "push.consumer",
    "Context": "push.listening",
    "Limits": "group.process_queue",
    "LitePullConsumer": "pull.lite_pull",
    "LitePullSettings": "pull.lite_pulling",
    "Message": "base.message",
    "MessageQueue": "cluster.route",
    "MessageView": "base.message_view",
    "Outcome": "push.listening",
    "PopSettings": "push.popped_queues",
    "PoppedMessage": "pop.simple",
    "Producer": "producer.producer",
    "PullConsumer": "pull.pull_consumer",
    "PullSettings": "group.pull",
    "ReceivedMessage": "group.received",
    "Security": "base.security",
    "SendReceipt": "base.receipts",
    "SendStatus": "base.receipts",
    "SimpleConsumer": "pop.simple",
    "TransactionProducer": "producer.transactions",
    "TransactionState": "producer.broker_requests",
    "by_sql": "group.subscriptions",
    "by_tag": "group.subscriptions",
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
