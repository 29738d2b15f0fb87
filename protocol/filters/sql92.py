"""SQL92 filter expressions: compiles a text to a predicate over a message's properties.

As in RocketMQ, values are true, false or unknown, and only true matches. The parser stops at the
first token that it can't use and ignores the rest, so `a LIKE 'x'` is the bare property `a`. Length
and depth have limits; chains of AND and OR have no depth.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from .sql92_values import INT_MAX, LONG_MAX, Long, compare, read_double, read_int, read_long

TEXT_CHARS_MAX = 32_768  # of one expression
TOKENS_MAX = 8_192  # of one expression: parsing one of this length blocks the loop for some 50 ms
DEPTH_MAX = 64  # operators inside each other


class Properties(Protocol):
    """A message's properties, as far as an expression asks for them."""

    def get(self, name: str, /) -> object:
        """The value of a property, None when the message doesn't have it: a text, or what
        `predicate` says of fields."""


Evaluate = Callable[[Properties], Any]
Predicate = Callable[[Properties], bool]


class SqlError(ValueError):
    """An expression that can't be used: the fault and its position, `at` counted from 0; None for
    the whole. `pattern` is the fault with `%(name)s` for each of its `values`, which are an error's
    own where it has one inside."""

    def __init__(self, pattern: str, at: int | None = None, /, **values: object) -> None:
        super().__init__(pattern % values)
        self.pattern = pattern
        self.values = values
        self.at = at


def _word(text: str) -> str:
    letters = "".join(f"[{letter}{letter.lower()}]" for letter in text)
    return f"{text}.2: /{letters}(?![A-Za-z0-9_$])/"


_WORDS = (
    "NOT",
    "AND",
    "OR",
    "BETWEEN",
    "IN",
    "TRUE",
    "FALSE",
    "NULL",
    "IS",
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
)
_NAME = "/[A-Za-z_$][A-Za-z0-9_$]*/"
_FIELD = r"/[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z0-9_$]+)*/"
_GRAMMAR = (
    r"""
start: either
?either: both (OR both)*
?both: equality (AND equality)*
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> not_equal
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison (GREATER_EQUAL | GREATER | LESS_EQUAL | LESS) unary -> ordered
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING -> part
    | comparison NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING -> no_part
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN "(" STRING ("," STRING)* ")" -> among
    | comparison NOT IN "(" STRING ("," STRING)* ")" -> not_among
?unary: "+" unary
    | "-" unary -> negated
    | NOT unary -> inverted
    | STRING -> string
    | DECIMAL -> whole
    | FLOAT -> decimal
    | (TRUE | FALSE | NULL) -> constant
    | ID -> variable
    | "(" either ")"
GREATER_EQUAL.1: ">="
GREATER: ">"
LESS_EQUAL.1: "<="
LESS: "<"
ID: """
    + _NAME
    + r"""
FLOAT.2: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
STRING: /'(''|[^'])*'/
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
    + "\n".join(map(_word, _WORDS))
)

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_PARTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


@dataclass(slots=True, frozen=True)
class _Node:
    """A part of an expression: its evaluation, and the facts that the checks need."""

    run: Evaluate
    at: int  # where it begins in the text
    depth: int = 1
    is_boolean: bool = False
    is_constant: bool = False
    value: object = None  # of a constant
    name: str | None = None  # of a property
    is_text: bool = False  # its value is a text wherever it has one
    alike: tuple[str, tuple[Evaluate, ...]] = ("", ())  # a chain of AND or OR, and its members


def predicate(text: str, *, fields: bool = False, is_whole: bool = False) -> Predicate:
    """The predicate that an expression stands for; SqlError naming the place of a fault.

    With `fields` a name may have dots (`body.order.total`), and a property may have the value of a
    field: a text, a number, a truth value. With `is_whole` an ignored rest is a fault.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise SqlError(
            "the SQL92 expression has %(count)s characters, the limit is %(limit)s; shorten it",
            count=len(text),
            limit=TEXT_CHARS_MAX,
        )
    run = _parse(text, fields, is_whole)

    def matches(properties: Properties) -> bool:
        try:
            return run(properties) is True
        except ValueError:  # a property of another type than its operand
            return False

    return matches


def _parse(text: str, fields: bool, is_whole: bool) -> Evaluate:
    state = _parser(fields=fields).parse_interactive(text)
    at, shown = len(text), ""
    count, is_ignored = 0, False
    try:
        for token in _tokens(state.lexer_thread, state.parser_state, text, fields):
            at, shown = token.start_pos or 0, repr(str(token)[:32])
            count += 1
            if count > TOKENS_MAX:
                raise _fault(
                    at, "it has more than %(limit)s words, values and signs", limit=TOKENS_MAX
                )
            try:
                state.feed_token(token)
            except UnexpectedToken:
                is_ignored = True  # what follows, if what there is can stand alone
                break
            at, shown = len(text), ""
        whole: _Node = state.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedCharacters as wrong:
        at = wrong.pos_in_stream or 0
        raise _fault(
            at, "%(sign)s begins nothing that is known here", sign=repr(text[at])
        ) from None
    except UnexpectedToken:
        if not shown:
            raise _fault(at, "the expression can't be read on at its end") from None
        raise _fault(at, "the expression can't be read on at %(shown)s", shown=shown) from None
    if is_ignored and is_whole:
        raise _fault(at, "RocketMQ reads no further than to %(shown)s", shown=shown)
    return whole.run


def _tokens(thread: Any, state: Any, text: str, fields: bool) -> Iterator[Token]:
    """The tokens of a text, from the lexer of this thread.

    Behind the last line break `--` begins no comment: the lexer would search the end of each one,
    which takes time with the square of the text's length.
    """
    last = max(text.rfind("\n"), text.rfind("\r"))
    behind = thread.lexer
    if text.find("--", last + 1) >= 0:
        parser = _parser(with_comments=False, fields=fields)
        behind = parser.parse_interactive("").lexer_thread.lexer
    with suppress(EOFError):
        while True:
            lexer = behind if thread.state.line_ctr.char_pos > last else thread.lexer
            yield lexer.next_token(thread.state, state)


def _fault(at: int, pattern: str, /, **values: object) -> SqlError:
    return SqlError(
        "the SQL92 expression is wrong at character %(number)s: %(what)s; correct it",
        at,
        number=at + 1,
        what=SqlError(pattern, at, **values),
    )


@v_args(inline=True)
class _Builder(Transformer[Token, _Node]):
    """Makes a closure of each rule when the parser reaches its end."""

    def __init__(self, *, is_text: bool) -> None:
        super().__init__()
        self._is_text = is_text

    def start(self, whole: _Node) -> _Node:
        return _boolean(whole)

    def either(self, *parts: Any) -> _Node:
        return _chain("OR", parts[::2])

    def both(self, *parts: Any) -> _Node:
        return _chain("AND", parts[::2])

    def equal(self, left: _Node, right: _Node) -> _Node:
        for side in (left, right):
            if side.is_constant and side.value is None:
                raise _fault(side.at, "NULL can't be compared; write IS NULL")
        if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
            raise _fault(right.at, "this can't be compared with a truth value")
        return _equal(left, right)

    def not_equal(self, left: _Node, right: _Node) -> _Node:
        return _inverted(self.equal(left, right))

    def is_null(self, left: _Node, *words: Token) -> _Node:
        return _equal(left, _constant(None, left.at))

    def is_not_null(self, left: _Node, *words: Token) -> _Node:
        return _inverted(self.is_null(left))

    def ordered(self, left: _Node, sign: Token, right: _Node) -> _Node:
        return _ordered(left, str(sign), right)

    def part(self, left: _Node, word: Token, text: Token) -> _Node:
        return _part(left, word, text, True)

    def no_part(self, left: _Node, _: Token, word: Token, text: Token) -> _Node:
        return _part(left, word, text, False)

    def between(self, value: _Node, _: Token, low: _Node, __: Token, high: _Node) -> _Node:
        if low.is_constant and high.is_constant:
            if low.value is None or high.value is None:
                raise _fault(low.at, "the bounds of BETWEEN can't be NULL")
            try:
                wrong = compare(high.value, low.value) < 0
            except ValueError:
                wrong = True
            if wrong:
                raise _fault(low.at, "the lower bound of BETWEEN is above the upper one")
        return _chain("AND", (_ordered(value, ">=", low), _ordered(value, "<=", high)))

    def not_between(self, value: _Node, *rest: Any) -> _Node:
        low, high = rest[2], rest[4]
        return _chain("OR", (_ordered(value, "<", low), _ordered(value, ">", high)))

    def among(self, left: _Node, _: Token, *texts: Token) -> _Node:
        return _among(left, texts, True)

    def not_among(self, left: _Node, _: Token, __: Token, *texts: Token) -> _Node:
        return _among(left, texts, False)

    def negated(self, inner: _Node) -> _Node:
        run = inner.run

        def evaluate(properties: Properties) -> object:
            found = run(properties)
            if type(found) is Long:
                return Long(-found)
            return -found if type(found) in (int, float) else None

        return _node(evaluate, inner)

    def inverted(self, _: Token, inner: _Node) -> _Node:
        return _inverted(_boolean(inner))

    def string(self, token: Token) -> _Node:
        return _constant(_unquoted(token), token.start_pos or 0)

    def whole(self, token: Token) -> _Node:
        at, digits = token.start_pos or 0, token.rstrip("lL")
        if len(digits) > 19 or int(digits) > LONG_MAX:
            raise _fault(at, "the number is above %(limit)s", limit=LONG_MAX)
        number = int(digits)
        return _constant(number if number <= INT_MAX else Long(number), at)

    def decimal(self, token: Token) -> _Node:
        at, number = token.start_pos or 0, float(token)
        if not 0 < number < float("inf"):
            raise _fault(
                at, "a decimal number must be above 0 and not above 1.7976931348623157E308"
            )
        return _constant(number, at)

    def constant(self, token: Token) -> _Node:
        value = {"TRUE": True, "FALSE": False}.get(token.type)
        return replace(_constant(value, token.start_pos or 0), is_boolean=True)

    def variable(self, token: Token) -> _Node:
        name, at = str(token), token.start_pos or 0
        return _Node(lambda properties: properties.get(name), at, name=name, is_text=self._is_text)


def _node(run: Evaluate, *parts: _Node, is_boolean: bool = False) -> _Node:
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise _fault(parts[0].at, "it nests deeper than %(limit)s operators", limit=DEPTH_MAX)
    return _Node(run, parts[0].at, depth, is_boolean)


def _constant(value: object, at: int) -> _Node:
    return _Node(lambda _: value, at, is_constant=True, value=value)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _boolean(node: _Node) -> _Node:
    """The node where a truth value is needed: a property's value counts as false there, and what
    can be none is a fault."""
    if node.is_boolean:
        return node
    if node.name is None:
        raise _fault(node.at, "this is not true or false, which is needed here")
    run = node.run

    def evaluate(properties: Properties) -> bool | None:
        found = run(properties)
        return None if found is None else found is True

    return _node(evaluate, node, is_boolean=True)


def _inverted(node: _Node) -> _Node:
    run = node.run

    def evaluate(properties: Properties) -> bool | None:
        found = run(properties)
        return None if found is None else not found

    return _node(evaluate, node, is_boolean=True)


def _chain(word: str, nodes: tuple[_Node, ...]) -> _Node:
    nodes = tuple(map(_boolean, nodes))
    members: tuple[Evaluate, ...] = ()
    for node in nodes:
        members += node.alike[1] if node.alike[0] == word else (node.run,)
    decided = word == "OR"  # the value that decides the result

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decided
        for run in members:
            found = run(properties)
            if found is decided:
                result = decided
                break
            if found is None:
                result = None
        return result

    return replace(_node(evaluate, *nodes, is_boolean=True), alike=(word, members))


def _equal(left: _Node, right: _Node) -> _Node:
    one, two = left.run, right.run

    def evaluate(properties: Properties) -> bool | None:
        found, other = one(properties), two(properties)
        if found is None:
            return True if other is None else None
        return other is not None and compare(found, other) == 0

    if left.name is not None and left.is_text and type(right.value) is str:
        name, text = left.name, right.value

        def same(properties: Properties) -> bool | None:
            found = properties.get(name)
            return None if found is None else found == text

        return _node(same, left, right, is_boolean=True)
    return _node(evaluate, left, right, is_boolean=True)


def _ordered(left: _Node, sign: str, right: _Node) -> _Node:
    for side in (left, right):
        if side.is_boolean or (side.is_constant and type(side.value) not in (int, Long, float)):
            raise _fault(side.at, "this can't be compared by %(sign)s, only numbers can", sign=sign)
    decide, one, two = _ORDERS[sign], left.run, right.run

    def evaluate(properties: Properties) -> bool | None:
        found = one(properties)
        if found is None:
            return None
        other = two(properties)
        if other is None:
            return None
        if type(found) is str and type(other) is str:
            found, other = read_double(found), read_double(other)
        return decide(compare(found, other), 0)

    if left.name is not None and left.is_text and type(right.value) in (int, Long):
        name, number = left.name, right.value
        read = read_long if type(number) is Long else read_int

        def number_is(properties: Properties) -> bool | None:
            text: Any = properties.get(name)
            return None if text is None else decide(read(text), number)

        return _node(number_is, left, right, is_boolean=True)
    return _node(evaluate, left, right, is_boolean=True)


def _part(left: _Node, word: Token, text: Token, wanted: bool) -> _Node:
    run, holds, piece = left.run, _PARTS[word.type], _unquoted(text)

    def evaluate(properties: Properties) -> bool:
        found = run(properties)
        return bool(piece) and type(found) is str and holds(found, piece) is wanted

    return _node(evaluate, left, is_boolean=True)


def _among(left: _Node, texts: tuple[Token, ...], wanted: bool) -> _Node:
    if left.name is None:
        raise _fault(left.at, "only a property can stand before IN")
    name, known = left.name, frozenset(map(_unquoted, texts))

    def evaluate(properties: Properties) -> bool | None:
        found = properties.get(name)
        return None if found is None else (found in known) is wanted

    return _node(evaluate, left, is_boolean=True)


@cache
def _parser(*, with_comments: bool = True, fields: bool = False) -> Lark:
    # Created for the first expression: a start without it is a tenth shorter.
    grammar = _GRAMMAR if with_comments else _GRAMMAR.replace("%ignore LINE_COMMENT\n", "")
    if fields:
        grammar = grammar.replace(_NAME, _FIELD)
    return Lark(grammar, parser="lalr", lexer="basic", transformer=_Builder(is_text=not fields))
