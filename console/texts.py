"""Texts that people read in their language: English, with what is needed to say it in another."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Self, TypeVar

from ..client.errors import BrokerError
from ..protocol.errors import Refusal
from ..protocol.filters.sql92 import SqlError
from .client_sentences import CLAUSES, NO_MEMBER, NO_TOPIC, pattern_of

SENTENCES_MAX = 8  # in each other

Wrong = TypeVar("Wrong", bound=BaseException)


class Text(str):
    """An English text. `pattern` is the text with `%(name)s` for each of its `values`; a page looks
    the pattern up in the visitor's language. For all else it is the English text."""

    pattern: str
    values: dict[str, str]

    def __new__(cls, pattern: str, /, **values: object) -> Self:
        # An error or a list would keep more alive than its text.
        told = {name: _value(one) for name, one in values.items()}
        found = super().__new__(cls, pattern % told)
        found.pattern, found.values = pattern, told
        return found

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:  # for copies
        return (self.pattern,), self.values


def counted(number: int, one: str, many: str, /, **values: object) -> Text:
    """A text with a `count`: `one` for 1, `many` for any other number."""
    return Text(one if number == 1 else many, count=f"{number:,}", **values)


SEPARATORS = (", ", "; ", ": ")  # of `joined`, which other languages have signs for


def joined(separator: str, parts: Iterable[str]) -> Text:
    """The parts as one text, each of which keeps its language."""
    values = {f"part{n}": part for n, part in enumerate(parts)}
    return Text(separator.join(f"%({name})s" for name in values), **values)


def text_of(wrong: BaseException) -> str:
    """The text of an error: a `Text` if it was raised with one, or if its pattern is known.

    What else another program says is a quotation, with its marks in a page that is not English.
    """
    first = wrong.args[0] if wrong.args else None
    if isinstance(first, Text):
        return first
    if isinstance(wrong, SqlError):
        return Text(wrong.pattern, **wrong.values)
    if isinstance(wrong, BrokerError):
        return _answered(wrong)
    return sentence(wrong.remark if isinstance(wrong, Refusal) else str(wrong))


def sentence(text: str, depth: int = SENTENCES_MAX) -> str:
    """A sentence of the client as a `Text`, with those in it; any other one as a quotation."""
    found = pattern_of(text) if depth else None
    if found is None:
        return quoted(text)
    pattern, values = found
    told = {
        name: sentence(one, depth - 1) if name in CLAUSES else one for name, one in values.items()
    }
    return Text(pattern, **told)


def quoted(text: str) -> str:
    """The words of another program, such as a broker's remark."""
    return Text("%(said)s", said=text) if text and not isinstance(text, Text) else text


def _answered(wrong: BrokerError) -> str:
    """The answer of a server that refuses, with its remark as a quotation."""
    told = Text(
        "%(address)s answered %(name)s (%(code)s)",
        address=wrong.address,
        name=wrong.name,
        code=wrong.code,
    )
    if wrong.what:
        found = pattern_of(wrong.what)  # none for the name of a request
        request = wrong.what if found is None else Text(found[0], **found[1])
        told = Text("%(answer)s to %(request)s", answer=told, request=request)
    if wrong.remark:
        remark = quoted(" ".join(wrong.remark.split()))
        told = Text("%(answer)s: %(remark)s", answer=told, remark=remark)
    return told if told == str(wrong) else quoted(str(wrong))


def _value(one: object) -> str:
    if isinstance(one, BaseException):
        return text_of(one)
    return one if isinstance(one, str) else str(one)


class TextError(Exception):
    """An error that a page says in the visitor's language: a text, or a pattern with its values.
    `status` is that of the answer."""

    status: ClassVar[int] = 400

    def __init__(self, text: str, /, **values: object) -> None:
        super().__init__(Text(text, **values) if values else text)


def status_of(wrong: BaseException) -> int:
    """The status of an answer that says the error: of any but ours that of a failed cluster, or
    that of a topic or a member that there is not."""
    if isinstance(wrong, TextError):
        return wrong.status
    text = text_of(wrong)
    return 404 if isinstance(text, Text) and text.pattern in (NO_TOPIC, NO_MEMBER) else 502


def refusal(kind: Callable[..., Wrong], pattern: str, /, **values: object) -> Wrong:
    """An error of HTTP whose page says the text in the visitor's language."""
    text = Text(pattern, **values)
    wrong = kind(text=text)
    wrong.args = (text,)
    return wrong
