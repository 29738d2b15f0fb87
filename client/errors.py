"""What can go wrong in the client, as one tree.

`ClientError` is our side: nothing was sent, or nobody answered. `BrokerError` is the other side: a
broker or name server answered, and its answer was no. `retriable` says whether the same call may
succeed when it is made again. A message says the cause, the value, the limit and what to do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol import codes

if TYPE_CHECKING:
    from .base.message import Message
    from .base.receipts import SendReceipt

# What another broker, or the same one later, may take (DefaultMQProducer's retryResponseCodes).
RETRIABLE_CODES = frozenset(
    (
        codes.TOPIC_NOT_EXIST,
        codes.SERVICE_NOT_AVAILABLE,
        codes.SYSTEM_ERROR,
        codes.SYSTEM_BUSY,
        codes.NO_PERMISSION,
        codes.NO_BUYER_ID,
        codes.NOT_IN_CURRENT_UNIT,
        codes.GO_AWAY,
    )
)


class AerobeeError(Exception):
    """Everything that this package raises on purpose."""

    retriable = False


class ClientError(AerobeeError):
    """The call failed on our side."""


class IllegalMessageError(ClientError, ValueError):
    """The message can't be sent as it is; nothing was sent."""


class ClosedError(ClientError):
    """The client was used before its start or after its end."""


class NoRouteError(ClientError):
    """No broker is known that serves the topic, or the part of it that was asked for."""

    retriable = True


class UnreachableError(ClientError, ConnectionError):
    """A broker or name server can't be connected, or the connection was lost before the answer.

    With `is_unsent` there was no connection, so nothing was sent. With `rest_s` above 0 there was
    none a moment ago, and the next attempt may be made in so many seconds.
    """

    retriable = True

    def __init__(self, said: str, rest_s: float = 0.0, *, is_unsent: bool = False) -> None:
        super().__init__(said)
        self.rest_s = rest_s
        self.is_unsent = is_unsent


class NoAnswerError(ClientError, TimeoutError):
    """The other side is connected and didn't answer in time; it may have done what was asked."""

    retriable = True


class BrokerError(AerobeeError):
    """The answer was no: `code` with its RocketMQ name, `remark`, and the `address` it came from.

    `retriable` is true for the codes that Java's producer tries again with another broker.
    """

    def __init__(self, code: int, remark: str | None, address: str, what: str = "") -> None:
        self.code = code
        self.name = codes.RESPONSE_NAMES.get(code, "UNKNOWN")
        self.remark = remark or ""
        self.address = address
        self.retriable = code in RETRIABLE_CODES
        said = f": {' '.join(self.remark.split())}" if self.remark else ""
        doing = f" to {what}" if what else ""
        super().__init__(f"{address} answered {self.name} ({code}){doing}{said}")


class RequesterGoneError(BrokerError):
    """The client that sent the request has left, so its reply has no receiver.

    Nothing can be done about it; a handler that has nothing else to do ignores this error:

        with contextlib.suppress(RequesterGoneError):
            await producer.reply(message, b"...")
    """

    def __init__(self, code: int, remark: str | None, address: str, what: str = "") -> None:
        super().__init__(code, remark, address, what)
        self.retriable = False
        self.args = (f"the reply has no receiver, the client that sent the request left: {self}",)


class BatchError(AerobeeError):
    """A part of a batch was sent and the rest was not.

    `receipts` are those of the parts that were sent, `unsent` the messages that were not; the
    first failure is the `__cause__`.
    """

    def __init__(
        self, receipts: Sequence["SendReceipt"], unsent: Sequence["Message"], cause: Exception
    ) -> None:
        self.receipts = list(receipts)
        self.unsent = list(unsent)
        self.retriable = bool(getattr(cause, "retriable", False))
        super().__init__(
            f"{len(unsent)} messages of the batch were not sent, {len(receipts)} of its parts "
            f"were: {cause}; send those in `unsent` again"
        )
        self.__cause__ = cause
