"""Values to HTML and to JSON. jinja2 escapes every value; None is written as "not known"."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from markupsafe import Markup, escape

from ..messages.json_text import Pairs, indented, parsed
from ..times import TIME_MS_MAX
from .languages import ENGLISH, Language, install

HERE = Path(__file__).parent
STATIC = HERE / "static"
FOLDED_VALUES_MAX, FOLDED_DEPTH_MAX = 2_000, 50
CODE = Markup("<code>{}</code>")
OPEN = Markup('<details open><summary>{}{} <span class="note">{}</span></summary><div>')
CLOSED = Markup('<details><summary>{}{} <span class="note">{}</span></summary><div>')
# C0 but tab and line feed, C1, marks of direction and joining, line separators, surrogates, BOM.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


@cache
def environment(language: Language = ENGLISH) -> Environment:
    """The templates in a language, which see no value unescaped. A template is compiled once."""
    final = partial(_final, language=language)
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        # A finalize without a context misses constants: {{ none }} was shown as "None".
        finalize=pass_context(lambda _context, value: final(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        one.__name__: partial(one, language=language)
        for one in (number, rate, when, exact, clock, due, age, size, percent, spark)
    }
    install(found, language, final)
    found.globals["static"] = static_name
    found.filters |= {"beside": beside, "coded": coded, "folded": folded}
    return found


def coded(text: str) -> Markup:
    """A text whose parts between backticks are code."""
    parts = visible(text).split("`")
    return Markup().join(CODE.format(one) if n % 2 else one for n, one in enumerate(parts))


def beside(
    columns: Sequence[Sequence[str]], cells: Sequence[Any] | Mapping[str, Any]
) -> Iterable[tuple[Sequence[str], Any]]:
    """Each column with its cell; of a map those of the columns' names."""
    if isinstance(cells, Mapping):
        cells = [cells[name] for name, *_ in columns]
    return zip(columns, cells, strict=True)


@cache
def unknown(language: Language) -> Markup:
    """The mark in place of a value that is not known."""
    return Markup('<span class="unknown">{}</span>').format(language.say("not known"))


def _final(value: Any, language: Language) -> Any:
    if value is None:
        return unknown(language)
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(str(language.local(value)))
    return value


def visible(text: str) -> str:
    """Text from a cluster, with each character that can't be seen or turns the text around as
    `\\u202e`."""
    return _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def number(value: float | None, language: Language = ENGLISH) -> str | Markup:
    """A count, with separators of thousands."""
    return unknown(language) if value is None else f"{value:,}"


def rate(value: float | None, language: Language = ENGLISH) -> str | Markup:
    """A rate a second."""
    return unknown(language) if value is None else f"{value:,.1f}/s"


def percent(value: float | None, language: Language = ENGLISH) -> str | Markup:
    """A part of 1."""
    return unknown(language) if value is None else f"{value:.1%}"


def size(value: float | None, language: Language = ENGLISH) -> str | Markup:
    """Bytes."""
    if value is None:
        return unknown(language)
    for unit in (language.say("bytes"), "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if not unit.endswith("B") else f"{value:,.1f} {unit}"


def age(seconds: float | None, language: Language = ENGLISH) -> str | Markup:
    """A time span in its two largest units."""
    if seconds is None:
        return unknown(language)
    whole = max(0, round(seconds))
    if whole == 0 and seconds > 0:
        return language.say("below 1 s")
    units = language.say("d h min s").split()
    parts = []
    for length, unit in zip((86_400, 3_600, 60, 1), units, strict=True):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or f"0 {units[-1]}"


def when(ms: int | None, language: Language = ENGLISH) -> Markup:
    """A time in UTC, as short as it can be: of today the time of day, else the minute. The exact
    one is its title; the page's script adds the local time to that."""
    return _time(ms, language, lambda at: f"{at:%H:%M:%S}" if _is_today(at) else f"{at:%F %H:%M}")


def exact(ms: int | None, language: Language = ENGLISH) -> Markup:
    """A time in UTC with its milliseconds."""
    return _time(ms, language, _in_full)


def clock(ms: int | None, language: Language = ENGLISH) -> Markup:
    """The time of day of a moment that has just been, in UTC."""
    return _time(ms, language, lambda at: f"{at:%H:%M:%S} UTC")


def due(ms: int | None, now_ms: int, language: Language = ENGLISH) -> Markup:
    """How long it is until a time, with the time itself as its title."""
    left_s = 0 if ms is None else (ms - now_ms) / 1000
    text = language.say("in %(time)s") % {"time": age(left_s, language)}
    return _time(ms, language, lambda _: text if left_s > 0 else language.say("due now"))


def _time(ms: int | None, language: Language, text: Callable[[datetime], str]) -> Markup:
    if ms is None:
        return unknown(language)
    if not 0 <= ms <= TIME_MS_MAX:
        return escape(language.say("%(ms)s ms, which is no time") % {"ms": ms})
    at = datetime.fromtimestamp(ms / 1000, UTC)
    shown = Markup('<time datetime="{}" title="{}">{}</time>')
    return shown.format(at.isoformat(), _in_full(at), text(at))


def _in_full(at: datetime) -> str:
    return f"{at:%F %H:%M:%S}.{at.microsecond // 1000:03} UTC"


def _is_today(at: datetime) -> bool:
    return at.date() == datetime.now(UTC).date()


def folded(text: str) -> Markup | None:
    """A JSON text as a list whose objects and arrays fold; None for another text, or a larger one
    than FOLDED_VALUES_MAX values or FOLDED_DEPTH_MAX levels."""
    try:
        value = parsed(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    parts: list[str] = []
    try:
        _fold(value, Markup(), parts, 0)
    except OverflowError:
        return None
    return Markup().join(parts)


def _fold(value: Any, name: Markup, parts: list[str], depth: int) -> None:
    if depth > FOLDED_DEPTH_MAX or len(parts) > 3 * FOLDED_VALUES_MAX:
        raise OverflowError
    if not isinstance(value, list) or not value:
        kind = "text" if type(value) is str else "value"
        shown = visible(indented(value))
        parts.append(Markup('<div>{}<span class="{}">{}</span></div>').format(name, kind, shown))
        return
    sign, end = "{}" if isinstance(value, Pairs) else "[]"
    head = OPEN if depth < 3 else CLOSED
    parts.append(head.format(name, sign, len(value)))
    for key, one in value if isinstance(value, Pairs) else enumerate(value):
        label = Markup('<span class="key">{}</span>: ').format(visible(str(key)))
        _fold(one, label, parts, depth + 1)
    parts.append(Markup("</div>{}</details>").format(end))


def spark(values: list[float | None], language: Language = ENGLISH) -> Markup:
    """A line of points as a drawing, for browsers without script."""
    known = [one for one in values if one is not None]
    if len(known) < 2:
        return Markup('<span class="unknown">{}</span>').format(language.say("no history yet"))
    top = max(known) or 1.0
    step = 300 / (len(known) - 1)
    points = " ".join(f"{n * step:.1f},{38 - 36 * one / top:.1f}" for n, one in enumerate(known))
    figures = {"first": known[0], "last": known[-1], "highest": max(known)}
    said = language.say("first %(first)s, last %(last)s, highest %(highest)s") % {
        name: f"{one:,.1f}" for name, one in figures.items()
    }
    return Markup(
        '<svg viewBox="0 0 300 40" role="img" aria-label="{}"><polyline points="{}"/></svg>'
    ).format(said, points)


@cache
def static_name(name: str) -> str:
    """A static file with a part of its hash, so that a browser may keep it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"static/{name}?v={digest[:16]}"


def linker(base: str, cluster: str) -> Callable[..., str]:
    """Makes links: `link("topic", name="a b")` is a URL with the cluster."""

    def link(page: str, /, **query: object) -> str:
        given = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "")}
        given = {"cluster": cluster, **given}
        return f"{base}/{page}?{urlencode(given, errors='replace')}"

    return link


def to_json(value: Any) -> bytes:
    """The value as JSON; not known is null."""
    text = json.dumps(_jsonable(value), ensure_ascii=True, allow_nan=False)
    return text.encode()


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _jsonable(getattr(value, one.name)) for one in dataclasses.fields(value)}
    fields = getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
    if fields is not None:
        return {name: _jsonable(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {str(key): _jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value
