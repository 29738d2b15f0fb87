"""The body of a request, as the handlers want it: a value or a Refusal."""

from typing import TypeVar

from .. import codes
from ..command import Command
from ..errors import Refusal
from .body import Body

Kind = TypeVar("Kind", bound=Body)


def body_of(command: Command, kind: type[Kind]) -> Kind:
    """The request's body as a `kind`; Refusal (SYSTEM_ERROR) saying what is wrong with it."""
    try:
        return kind.decode(command.body)
    except ValueError as wrong:
        raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
