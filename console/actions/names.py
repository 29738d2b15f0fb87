"""The names of topics and groups that forms give, checked before a broker is asked."""

from collections.abc import Callable

from ...protocol.errors import Refusal
from ...protocol.names import GROUP_CHARS_MAX, TOPIC_CHARS_MAX, check_group, check_topic
from .action import Unfit


def fit_topic(name: str) -> None:
    """Raise Unfit unless this can be the name of a topic."""
    _fit(name, check_topic, TOPIC_CHARS_MAX)


def fit_group(name: str) -> None:
    """Raise Unfit unless this can be the name of a group."""
    _fit(name, check_group, GROUP_CHARS_MAX)


def _fit(name: str, check: Callable[[str], None], chars_max: int) -> None:
    try:
        check(name)
    except Refusal:
        raise Unfit(
            "the name is %(name)s; give 1 to %(limit)s characters: the letters a to z and A to Z, "
            "digits, and the signs _ - %% |",
            name=f"{name[: chars_max + 1]!r}",
            limit=chars_max,
        ) from None
