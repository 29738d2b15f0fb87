"""The codes of RocketMQ 5, the error that carries one, and what a broker's refusal becomes."""

from enum import IntEnum
from typing import Any

from ...client.errors import BrokerError, NoAnswerError, NoRouteError
from ...protocol import codes
from ...protocol.errors import Refusal
from . import definitions


class Code(IntEnum):
    """The codes of a status, as in the definitions."""

    CODE_UNSPECIFIED = 0
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    INVALID_CLIENT_PROPERTIES = 40021
    UNAUTHORIZED = 40100
    PAYMENT_REQUIRED = 40200
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    REQUEST_TIMEOUT = 40800
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    UNSUPPORTED = 50500
    VERSION_UNSUPPORTED = 50501
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502
    FAILED_TO_CONSUME_MESSAGE = 60000


Status = definitions.message("Status")

MESSAGE_CHARS_MAX = 4_096

# What a broker's response code becomes; any other is INTERNAL_SERVER_ERROR.
_OF_BROKERS = {
    codes.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    codes.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    codes.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    codes.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    codes.NO_PERMISSION: Code.FORBIDDEN,
    codes.MESSAGE_ILLEGAL: Code.MESSAGE_CORRUPTED,
    codes.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    codes.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    codes.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    codes.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


class StatusError(Exception):
    """A call, or an entry of it, ends with this code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:MESSAGE_CHARS_MAX]

    def status(self) -> Any:
        """The error as a message of gRPC."""
        return Status(code=self.code, message=self.message)


OK_STATUS = Status(code=Code.OK, message="OK")
_ALL_OK = {int(Code.OK)}


def of_code(code: int) -> Any:
    """A status whose message is the name of the code."""
    return Status(code=code, message=Code(code).name)


def shared(found: list[Any], empty: str) -> Any:
    """The status over entries with these: the one they share, MULTIPLE_RESULTS, or `empty`."""
    numbers = {each.code for each in found}
    if numbers == _ALL_OK:  # as nearly always: a name of an enum's value takes longer to find
        return OK_STATUS
    if not numbers:
        return Status(code=Code.INTERNAL_SERVER_ERROR, message=empty)
    return of_code(numbers.pop() if len(numbers) == 1 else Code.MULTIPLE_RESULTS)


def of_broker(code: int, remark: str | None) -> StatusError:
    """The error for a broker's refusal; its remark stays."""
    found = _OF_BROKERS.get(code, Code.INTERNAL_SERVER_ERROR)
    name = codes.RESPONSE_NAMES.get(code, str(code))
    return StatusError(found, remark or f"the broker answered {name} ({code})")


def of_error(wrong: Exception) -> StatusError:
    """The error of gRPC for an error of the proxy's client."""
    if isinstance(wrong, StatusError):
        return wrong
    if isinstance(wrong, BrokerError):
        return of_broker(wrong.code, wrong.remark)
    if isinstance(wrong, Refusal):
        return of_broker(wrong.code, wrong.remark)
    if isinstance(wrong, NoRouteError):
        return StatusError(Code.TOPIC_NOT_FOUND, str(wrong))
    if isinstance(wrong, NoAnswerError):
        return StatusError(Code.PROXY_TIMEOUT, str(wrong))
    return StatusError(Code.INTERNAL_SERVER_ERROR, str(wrong) or type(wrong).__name__)
