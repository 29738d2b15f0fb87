"""The asyncio client: producers, consumers, administration.

`aerobee.client.blocking` offers the same classes to code without an event loop;
`aerobee.client.errors` lists the exceptions. Names are imported on first use, so a program that
only reads does not load the producer.
"""

from typing import TYPE_CHECKING

from .base.first_use import on_first_use

if TYPE_CHECKING:
    from . import errors as errors
    from .admin.admin import Admin as Admin
    from .base.message import Message as Message
    from .base.message_view import MessageView as MessageView
    from .base.receipts import BatchReceipt as BatchReceipt
    from .base.receipts import SendReceipt as SendReceipt
    from .base.receipts import SendStatus as SendStatus
    from .base.security import Security as Security
    from .cluster.route import MessageQueue as MessageQueue
    from .group.process_queue import Limits as Limits
    from .group.pull import PullSettings as PullSettings
    from .group.received import ReceivedMessage as ReceivedMessage
    from .group.subscriptions import by_sql as by_sql
    from .group.subscriptions import by_tag as by_tag
    from .pop.simple import PoppedMessage as PoppedMessage
    from .pop.simple import SimpleConsumer as SimpleConsumer
    from .producer.broker_requests import TransactionState as TransactionState
    from .producer.producer import Producer as Producer
    from .producer.transactions import TransactionProducer as TransactionProducer
    from .pull.lite_pull import LitePullConsumer as LitePullConsumer
    from .pull.lite_pulling import LitePullSettings as LitePullSettings
    from .pull.pull_consumer import PullConsumer as PullConsumer
    from .push.concurrent import ConsumeSettings as ConsumeSettings
    from .push.consumer import Consumer as Consumer
    from .push.listening import Context as Context
    from .push.listening import Outcome as Outcome
    from .push.popped_queues import PopSettings as PopSettings

# Each name and the module that has it.
_MODULES = {
    "Admin": ".admin.admin",
    "BatchReceipt": ".base.receipts",
    "ConsumeSettings": ".push.concurrent",
    "Consumer": ".push.consumer",
    "Context": ".push.listening",
    "Limits": ".group.process_queue",
    "LitePullConsumer": ".pull.lite_pull",
    "LitePullSettings": ".pull.lite_pulling",
    "Message": ".base.message",
    "MessageQueue": ".cluster.route",
    "MessageView": ".base.message_view",
    "Outcome": ".push.listening",
    "PopSettings": ".push.popped_queues",
    "PoppedMessage": ".pop.simple",
    "Producer": ".producer.producer",
    "PullConsumer": ".pull.pull_consumer",
    "PullSettings": ".group.pull",
    "ReceivedMessage": ".group.received",
    "Security": ".base.security",
    "SendReceipt": ".base.receipts",
    "SendStatus": ".base.receipts",
    "SimpleConsumer": ".pop.simple",
    "TransactionProducer": ".producer.transactions",
    "TransactionState": ".producer.broker_requests",
    "by_sql": ".group.subscriptions",
    "by_tag": ".group.subscriptions",
    "errors": ".errors",
}

__all__ = list(_MODULES)
__getattr__, __dir__ = on_first_use(__name__, _MODULES)
