"""The exceptions that a wrong argument raises; the first two are the roots of all of `errors`.

They have a module of their own because messages check their arguments, and `errors` knows messages.
"""


class AerobeeError(Exception):
    """Everything that this package raises on purpose."""

    retriable = False


class ClientError(AerobeeError):
    """The call failed locally."""


class IllegalMessageError(ClientError, ValueError):
    """The message can't be sent as it is; nothing was sent."""
