"""Checks of arguments: type and range, before anything else happens."""

from collections.abc import Callable

from ..argument_errors import ClientError

SHOWN_MAX = 100  # characters of a value, in an error


def check_type(
    name: str,
    value: object,
    wanted: type | tuple[type, ...],
    cure: str,
    error: Callable[[str], ClientError] = ClientError,
) -> None:
    """`error` with the value and the cure when it is of another type; a bool is no number."""
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise error(wrong_type(name, value, cure))


def wrong_type(name: str, value: object, cure: str) -> str:
    """The sentence of that error."""
    return f"{name} is {shown(value)}, a {type(value).__name__}; {cure}"


def shown(value: object) -> str:
    """A value as an error shows it, up to SHOWN_MAX characters of it."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def check_timeout(timeout: object) -> None:
    """ClientError when it is no number of seconds above 0."""
    check_type("timeout", timeout, (int, float), "give seconds above 0")
    assert isinstance(timeout, (int, float))
    if not timeout > 0:
        raise ClientError(f"timeout is {timeout}; give seconds above 0")


def check_count(
    name: str, value: object, least: int, most: int | None = None, unit: str = ""
) -> None:
    """ClientError when it is no whole number of this range."""
    span = f"{least} or more" if most is None else f"{least} to {most}"
    if unit:
        span += f" {unit}"
    check_type(name, value, int, f"give {span}")
    assert isinstance(value, int)
    if value < least or (most is not None and value > most):
        raise ClientError(f"{name} is {value}; give {span}")
