"""Texts that people read in their language: English, with what is needed to say it in another."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Self, TypeVar

Refusal = TypeVar("Refusal", bound=BaseException)


class Text(str):
    """An English text. `pattern` is the text with `%(name)s` for each of its `values`; a page looks
    the pattern up in the visitor's language. For all else it is the English text."""

    pattern: str
    values: dict[str, str]

    def __new__(cls, pattern: str, /, **values: object) -> Self:
        found = super().__new__(cls, pattern % values)
        found.pattern = pattern
        # An error or a list would keep more alive than its text.
        found.values = {
            name: one if isinstance(one, str) else str(one) for name, one in values.items()
        }
        return found

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:  # for copies
        return (self.pattern,), self.values


def counted(number: int, one: str, many: str, /, **values: object) -> Text:
    """A text with a `count`: `one` for 1, `many` for any other number."""
    return Text(one if number == 1 else many, count=f"{number:,}", **values)


def joined(separator: str, parts: Iterable[str]) -> Text:
    """The parts as one text, each of which keeps its language."""
    values = {f"part{n}": part for n, part in enumerate(parts)}
    return Text(separator.join(f"%({name})s" for name in values), **values)


def text_of(wrong: BaseException) -> str:
    """The text of an error; a `Text` if it was raised with one."""
    first = wrong.args[0] if wrong.args else None
    return first if isinstance(first, Text) else str(wrong)


class TextError(Exception):
    """An error that a page says in the visitor's language: a text, or a pattern with its values.
    `status` is that of the answer."""

    status: ClassVar[int] = 400

    def __init__(self, text: str, /, **values: object) -> None:
        super().__init__(Text(text, **values) if values else text)


def status_of(wrong: BaseException) -> int:
    """The status of an answer that says the error; that of a failed cluster for any but ours."""
    return wrong.status if isinstance(wrong, TextError) else 502


def refusal(kind: Callable[..., Refusal], pattern: str, /, **values: object) -> Refusal:
    """An error of HTTP whose page says the text in the visitor's language."""
    text = Text(pattern, **values)
    wrong = kind(text=text)
    wrong.args = (text,)
    return wrong
