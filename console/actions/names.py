"""The names of topics and groups that forms give, checked before a broker is asked."""

from ...protocol.errors import Refusal
from ...protocol.names import GROUP_CHARS_MAX, TOPIC_CHARS_MAX, check_group, check_topic
from ..texts import Text
from .action import Unfit


def fit_topic(name: str, field: str = "") -> None:
    """Raise Unfit, at the field, unless this can be the name of a topic."""
    try:
        check_topic(name)
    except Refusal:
        told = Text("the topic's name is %(name)s", name=f"{name[: TOPIC_CHARS_MAX + 1]!r}")
        raise _unfit(told, TOPIC_CHARS_MAX).at(field) from None


def fit_group(name: str, field: str = "") -> None:
    """Raise Unfit, at the field, unless this can be the name of a group."""
    try:
        check_group(name)
    except Refusal:
        told = Text("the group's name is %(name)s", name=f"{name[: GROUP_CHARS_MAX + 1]!r}")
        raise _unfit(told, GROUP_CHARS_MAX).at(field) from None


def _unfit(told: Text, chars_max: int) -> Unfit:
    return Unfit(
        "%(told)s; give 1 to %(limit)s characters: the letters a to z and A to Z, digits, and the "
        "signs _ - %% |",
        told=told,
        limit=chars_max,
    )
