"""The asyncio client: producers, consumers, administration. `client.blocking` has the same
for code without an event loop."""

from .consumer import Consumer
from .message import Message
from .producer import Producer
from .received import ReceivedMessage
from .route import MessageQueue

__all__ = ["Consumer", "Message", "MessageQueue", "Producer", "ReceivedMessage"]
