"""JSON as the Java side's library, fastjson 1.2.83, writes and reads it.

Its text may deviate from JSON: integer keys without quotes (`{0:"a:1"}`), whole objects as keys
(`{{"queueId":1}:5}`), names and texts in single quotes, names without quotes, superfluous commas,
and `{"$ref":"$.path"}` for an object that occurred before. `parse` reads all of these; strict JSON,
as nearly all texts are, goes through msgspec. `dump` writes the same form: no spaces, keys sorted,
None left out.

An object used as a key becomes an `ObjectKey`: a hashable tuple of its (name, value) pairs, sorted,
so `dict(key)` is the object again. A map with integer keys is a dict with int keys.
"""

import re
from collections.abc import Callable
from json.decoder import JSONDecodeError
from json.decoder import scanstring as _scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring, encode_basestring_ascii
from math import isfinite
from typing import Any

import msgspec

TEXT_BYTES_MAX = 16 << 20  # a frame can't be larger
LENIENT_BYTES_MAX = 4 << 20  # of a text that is not strict JSON: reading it takes a second
DEPTH_MAX = 64  # levels of objects and arrays in a text that is not strict JSON
NODES_MAX = 1_000_000  # values that a text may stand for once its references are followed

_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
# A text, or a key that is an integer or an object without objects inside.
_TEXT_OR_KEY = re.compile(
    _TEXT + rb'|([{,]\s*+)(?:(-?\d++)|(\{(?:[^{}"]++|' + _TEXT + rb")*+\}))(?=\s*+:)", re.DOTALL
)


class ObjectKey(tuple[tuple[str, Any], ...]):
    """An object used as a key: its (name, value) pairs, sorted by name."""

    __slots__ = ()

    @classmethod
    def of(cls, value: dict[Any, Any]) -> "ObjectKey":
        """The key that stands for this object."""
        pairs = ((str(name), _frozen(inner)) for name, inner in value.items())
        return cls(sorted(pairs, key=lambda pair: pair[0]))


def parse(
    text: str | bytes,
    bytes_max: int = TEXT_BYTES_MAX,
    lenient_bytes_max: int = LENIENT_BYTES_MAX,
) -> Any:
    """The value of this text: dict, list, str, int, float, bool or None.

    Raises ValueError with the place and the reason when it can't be read, is longer than
    `bytes_max` bytes (`lenient_bytes_max` where it is not strict JSON) or nests deeper than
    `DEPTH_MAX` levels.
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    _check_size(data, bytes_max)
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("JSON nests deeper than this reader follows") from None
    except ValueError:
        _check_size(data, lenient_bytes_max)
        value = _parse_lenient(data.decode())
    return _Resolver(value).resolved() if b'"$ref"' in data else value


def quote_keys(text: bytes) -> bytes:
    """The same text with quotes around keys that are integers or objects.

    Usually that makes a Java text strict JSON, which is read much faster. Strings stay as they are.
    """
    return _TEXT_OR_KEY.sub(_quoted, text)


def _quoted(found: re.Match[bytes]) -> bytes:
    before, number, key = found.groups()
    if before is None:
        return found[0]
    if number is not None:
        return b'%b"%b"' % (before, number)
    return before + b'"' + key.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def dump(value: Any, *, bare_keys: bool = True, ascii_only: bool = False) -> bytes:
    """The text of a value, as compact UTF-8 with sorted keys; entries that are None are left out.

    `value` is made of dicts, lists, tuples, sets (written sorted), texts, numbers, booleans and
    msgspec structs. With `bare_keys`, integer keys have no quotes and object keys (an ObjectKey or
    a struct) stand as objects; without, both are texts, which is standard JSON. With `ascii_only`
    every other character is escaped. Raises ValueError naming a type that has no JSON form.
    """
    parts: list[str] = []
    _Writer(parts.append, bare_keys, ascii_only).write(value)
    return "".join(parts).encode("utf-8", "replace")


# Reading

_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_GAP = re.compile(r"[ \t\r\n\f\b,]*")  # fastjson allows commas to be repeated
_NUMBER = re.compile(r"-?\d+(?:(\.\d+)?([eE][+-]?\d+)?)", re.ASCII)
_NUMBERS = re.compile(r"((?:-?\d+:-?\d+,)*-?\d+:-?\d+)\}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_SINGLE = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_REQUOTE = re.compile(r"\\.|\"", re.DOTALL)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def _parse_lenient(text: str) -> Any:
    try:
        value, at = _value(text, _space(text, 0), 0)
    except JSONDecodeError as wrong:
        raise ValueError(f"JSON can't be read: {wrong.msg} at character {wrong.pos}") from None
    if _space(text, at) != len(text):
        raise _wrong(text, at, "the end")
    return value


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise ValueError(f"JSON of {len(data)} bytes is over the limit of {limit} bytes")


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first == '"':
        return _text(text, at + 1)
    if first == "{":
        return _object(text, at + 1, depth + 1)
    if first == "[":
        return _array(text, at + 1, depth + 1)
    if first == "'":
        return _single_quoted(text, at)
    number = _NUMBER.match(text, at)
    if number:
        whole = number[1] is None and number[2] is None
        return (int(number[0]) if whole else float(number[0])), number.end()
    word = _NAME.match(text, at)
    if word and word[0] in _WORDS:
        return _WORDS[word[0]], word.end()
    raise _wrong(text, at, "a value")


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    _check_depth(depth)
    numbers = _NUMBERS.match(text, at)
    if numbers:  # ten times as fast, and the offsets of all groups are such maps
        pairs = (pair.split(":") for pair in numbers[1].split(","))
        return {int(key): int(value) for key, value in pairs}, numbers.end()
    found: dict[Any, Any] = {}
    after = _gap(text, at)
    while text[after : after + 1] != "}":
        if found and "," not in text[at:after]:
            raise _wrong(text, after, "a comma or }")
        key, at = _key(text, after, depth)
        at = _space(text, at)
        if text[at : at + 1] != ":":
            raise _wrong(text, at, "a colon")
        found[key], at = _value(text, _space(text, at + 1), depth)
        after = _gap(text, at)
    return found, after + 1


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    _check_depth(depth)
    found: list[Any] = []
    after = _gap(text, at)
    while text[after : after + 1] != "]":
        if found and "," not in text[at:after]:
            raise _wrong(text, after, "a comma or ]")
        inner, at = _value(text, after, depth)
        found.append(inner)
        after = _gap(text, at)
    return found, after + 1


def _key(text: str, at: int, depth: int) -> tuple[Any, int]:
    word = _NAME.match(text, at)
    if word:
        return word[0], word.end()
    key, at = _value(text, at, depth)
    if isinstance(key, dict):
        return ObjectKey.of(key), at
    if isinstance(key, str | int):
        return key, at
    raise _wrong(text, at, "a key that is a text, an integer or an object")


def _single_quoted(text: str, at: int) -> tuple[str, int]:
    found = _SINGLE.match(text, at)
    if not found:
        raise _wrong(text, at, "a closing '")
    quoted = _REQUOTE.sub(_requoted, found[1])
    return _text(quoted + '"', 0)[0], found.end()


def _text(text: str, at: int) -> tuple[str, int]:
    """The text whose opening quote is before `at`, and the index after its closing quote."""
    value, at = _scanstring(text, at, False)
    if not value.isascii():
        # A lone surrogate ("\\ud800") has no UTF-8 form, so no response could repeat it; Java
        # writes "?".
        value = value.encode("utf-8", "replace").decode()
    return value, at


def _requoted(found: re.Match[str]) -> str:
    return {'"': '\\"', "\\'": "'"}.get(found[0], found[0])


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _gap(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    return found.end() if found else at


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"JSON nests deeper than the limit of {DEPTH_MAX} levels")


def _wrong(text: str, at: int, wanted: str) -> ValueError:
    found = repr(text[at : at + 12]) if at < len(text) else "the end"
    return ValueError(f"JSON can't be read: {wanted} expected at character {at}, found {found}")


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return ObjectKey.of(value)
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value


class _Resolver:
    """Replaces each `{"$ref":"$.path"}` by the object at its path, where it occurred first.

    Values are counted as if each reference were written out, so that a short text can't stand for
    a gigantic one.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._sizes: dict[int, int] = {}  # by id of a container; 0 while it is being resolved

    def resolved(self) -> Any:
        try:
            self._visit(self._root)
        except RecursionError:
            raise ValueError("JSON nests deeper than this reader follows") from None
        return self._root

    def _visit(self, node: Any) -> int:
        if not isinstance(node, dict | list):
            return 1
        size = self._sizes.get(id(node))
        if size is None:
            self._sizes[id(node)] = 0
            size = 1 + sum(self._entry(node, key, inner) for key, inner in _entries(node))
            self._sizes[id(node)] = size
        elif size == 0:
            raise ValueError("a $ref in JSON leads to an object that holds it")
        if size > NODES_MAX:
            raise ValueError(f"JSON stands for more than {NODES_MAX} values through its $refs")
        return size

    def _entry(self, node: Any, key: Any, inner: Any) -> int:
        path = _reference(inner)
        if path is None:
            return self._visit(inner)
        target = self._find(path)
        node[key] = target
        return self._visit(target)

    def _find(self, path: str) -> Any:
        node = self._root
        if path[:1] != "$":
            raise ValueError(f"a $ref in JSON is {path!r}; only paths from the root ($) are read")
        for step in _STEP.finditer(path, 1):
            name = _UNESCAPE.sub(r"\1", step[1]) if step[1] is not None else int(step[2])
            node = _child(node, name)
            if node is None or _reference(node) is not None:
                raise ValueError(f"a $ref in JSON leads nowhere: {path!r}")
        return node


_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(\d+)\]", re.DOTALL)
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)


def _entries(node: dict[Any, Any] | list[Any]) -> list[tuple[Any, Any]]:
    return list(node.items()) if isinstance(node, dict) else list(enumerate(node))


def _reference(node: Any) -> str | None:
    if isinstance(node, dict) and len(node) == 1:
        path = node.get("$ref")
        return path if isinstance(path, str) else None
    return None


def _child(node: Any, name: str | int) -> Any:
    if isinstance(node, list):
        return node[name] if isinstance(name, int) and name < len(node) else None
    if not isinstance(node, dict):
        return None
    if name in node:
        return node[name]
    # An integer key is text in a path, and an int in the map unless it was quoted there.
    return node.get(int(name)) if str(name).isdecimal() else None


# Writing


class _Writer:
    """Writes one value by passing pieces of text to `put`."""

    def __init__(self, put: Callable[[str], None], bare_keys: bool, ascii_only: bool) -> None:
        self._put = put
        self._bare_keys = bare_keys
        self._quote = encode_basestring_ascii if ascii_only else encode_basestring

    def write(self, value: Any) -> None:
        put = self._put
        kind = type(value)
        if kind is str:
            put(self._quote(value))
        elif kind is int:
            put(str(value))
        elif kind is bool:
            put("true" if value else "false")
        elif kind is dict and set(map(type, value)) == set(map(type, value.values())) == {int}:
            # Ten times as fast, and the offsets of all groups are such maps.
            line = "%d:%d" if self._bare_keys else '"%d":%d'
            put("{" + ",".join([line % pair for pair in _sorted(value)]) + "}")
        elif kind is dict:
            self._pairs([(self._key(key), inner) for key, inner in _sorted(value)])
        elif kind is list or kind is tuple:
            self._items(value)
        elif isinstance(value, msgspec.Struct):
            self._pairs([(text, getattr(value, name)) for text, name in _fields(kind)])
        elif kind is float:
            put(repr(value) if isfinite(value) else "null")  # as fastjson does
        elif value is None:
            put("null")
        elif kind is ObjectKey:
            self._pairs([(self._quote(name), inner) for name, inner in value])
        elif isinstance(value, set | frozenset):
            self._items(sorted(value))
        else:
            raise ValueError(f"a {kind.__name__} has no JSON form: {value!r}")

    def _pairs(self, pairs: list[tuple[str, Any]]) -> None:
        put = self._put
        mark = "{"
        for key, inner in pairs:
            if inner is None:
                continue
            put(mark)
            put(key)
            put(":")
            self.write(inner)
            mark = ","
        put("{}" if mark == "{" else "}")

    def _items(self, items: Any) -> None:
        put = self._put
        if set(map(type, items)) == {str}:
            # Five times as fast, and names of topics, groups and members are such lists.
            put("[" + ",".join(map(self._quote, items)) + "]")
            return
        put("[")
        mark = ""
        for inner in items:
            put(mark)
            self.write(inner)
            mark = ","
        put("]")

    def _key(self, key: Any) -> str:
        if type(key) is str:
            return self._quote(key)
        if type(key) is int:
            return str(key) if self._bare_keys else f'"{key}"'
        parts: list[str] = []
        _Writer(parts.append, self._bare_keys, self._quote is encode_basestring_ascii).write(key)
        text = "".join(parts)
        return text if self._bare_keys else self._quote(text)


_fields_by_kind: dict[type, list[tuple[str, str]]] = {}


def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """The quoted wire name and the name of each field of a struct, sorted by wire name."""
    found = _fields_by_kind.get(kind)
    if found is None:
        names = sorted((info.encode_name, info.name) for info in msgspec.structs.fields(kind))
        found = [(encode_basestring(wire), name) for wire, name in names]
        _fields_by_kind[kind] = found
    return found


def _sorted(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The entries sorted by key, by the keys' texts if their types can't be compared."""
    try:
        return sorted(value.items(), key=lambda pair: pair[0])
    except TypeError:
        return sorted(value.items(), key=lambda pair: str(pair[0]))
