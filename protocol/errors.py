"""The two expected kinds of wrong in a conversation; everything else is our own bug.

A `Refusal` becomes an answer with a code and a remark that says the cause, the measured value and
the limit. `Malformed` means that the bytes can't be trusted any more: the connection closes.
"""

from . import codes


class Refusal(Exception):
    """A request that is understood and declined: answered with `code` and `remark`.

    `fields` are answer header fields (wire name to text) that RocketMQ sends with errors too.
    """

    def __init__(self, code: int, remark: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(f"{codes.RESPONSE_NAMES.get(code, code)}: {remark}")
        self.code = code
        self.remark = remark
        self.fields = fields


class Malformed(Exception):
    """Bytes that are not RocketMQ's protocol: the connection they came on is closed."""


def reason_of(error: BaseException) -> str:
    """The text of an error, or the name of its class when it has no text."""
    return str(error) or type(error).__name__
