"""The exceptions of the client, one tree.

`ClientError` is local: nothing was sent, or no response came. `BrokerError` is a broker's or name
server's refusal. `retriable` says whether the same call may succeed later. A message gives the
cause, the value, the limit and what to do.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol import codes
from .argument_errors import AerobeeError, ClientError, IllegalMessageError

if TYPE_CHECKING:
    from .base.message import Message
    from .base.receipts import SendReceipt

__all__ = [
    "AerobeeError",
    "BatchError",
    "BrokerError",
    "ClientError",
    "ClosedError",
    "IllegalMessageError",
    "NoAnswerError",
    "NoRouteError",
    "RequesterGoneError",
    "UnreachableError",
]

# Another broker, or the same one later, may succeed (DefaultMQProducer's retryResponseCodes).
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

# A broker with such a code has not executed the request: it stops, or is not the master any more.
NOT_IN_SERVICE = frozenset((codes.SERVICE_NOT_AVAILABLE, codes.GO_AWAY))
QUEUE_GONE = re.compile(r"queueId\[\d+\] is illegal")
REJECTED = "[REJECTREQUEST]"  # in the remark of SYSTEM_BUSY where the whole kind is not served


def is_not_in_service(code: int, remark: str | None) -> bool:
    """True if the answer says that the broker does not serve now, so the request had no effect."""
    return code in NOT_IN_SERVICE or (code == codes.SYSTEM_BUSY and REJECTED in (remark or ""))


def is_queue_gone(code: int, remark: str | None) -> bool:
    """True if the answer says that the topic no longer has the queue of the request.

    The remark is RocketMQ's, "request queueId[12] is illegal, ..." for a send and "queueId[12] is
    illegal, ..." for a pull; the code of a send was SYSTEM_ERROR before version 5.
    """
    is_code = code in (codes.INVALID_PARAMETER, codes.SYSTEM_ERROR)
    return is_code and QUEUE_GONE.search(remark or "") is not None


class ClosedError(ClientError):
    """The client was used before its start or after its end."""


class NoRouteError(ClientError):
    """No known broker serves the topic, or the requested queue of it."""

    retriable = True


class UnreachableError(ClientError, ConnectionError):
    """A broker or name server can't be connected, or the connection was lost before the response.

    With `is_unsent` nothing was sent. `rest_s` above 0 is the time in seconds until the next
    connection attempt is allowed.
    """

    retriable = True

    def __init__(self, said: str, rest_s: float = 0.0, *, is_unsent: bool = False) -> None:
        super().__init__(said)
        self.rest_s = rest_s
        self.is_unsent = is_unsent


class NoAnswerError(ClientError, TimeoutError):
    """No response in time; the server may have executed the request."""

    retriable = True


class BrokerError(AerobeeError):
    """The refusal of a server: `code` with its RocketMQ name, `remark`, the server's `address`, and
    `what` it was asked to do."""

    def __init__(self, code: int, remark: str | None, address: str, what: str = "") -> None:
        self.code = code
        self.name = codes.RESPONSE_NAMES.get(code, "UNKNOWN")
        self.remark = remark or ""
        self.address = address
        self.what = what
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
