"""The languages of pages: their texts, and which one a visitor reads.

English is written in the templates and the programs. Every other language is a file of JSON in
`texts`: the English text, or its pattern with `%(name)s`, and the text in that language.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from jinja2 import Environment
from markupsafe import Markup

from ..texts import SEPARATORS, Text

FOLDER = Path(__file__).parent / "texts"
COOKIE = "aerobee-language"
RANGES_MAX = 20  # of Accept-Language; the rest is not read


@dataclass(frozen=True, eq=False)
class Language:
    """A language. `code` is for HTML, `name` is what its speakers call it, `texts` has its text for
    each English one."""

    code: str
    name: str
    texts: dict[str, str] = field(default_factory=dict, repr=False)

    def say(self, text: str) -> str:
        """A text of the console in this language."""
        return self.texts.get(text, text)

    def word(self, text: object) -> object:
        """A text of the console, such as a title or a state, in this language."""
        if isinstance(text, str) and not isinstance(text, Text):
            return self.say(text)
        return self.local(text)

    def local(self, text: object) -> object:
        """A `Text` in this language; any other value, such as a name or a broker's remark, as it
        is."""
        if not isinstance(text, Text):
            return text
        pattern = self.say(text.pattern)
        if pattern.startswith("%(part0)s"):  # joined by signs that the language has, too
            for sign in SEPARATORS:
                pattern = pattern.replace(sign, self.say(sign))
        return pattern % {name: self.local(value) for name, value in text.values.items()}


def _read(code: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((FOLDER / f"{code}.json").read_text("utf-8"))
    return found


ENGLISH = Language("en", "English")
CHINESE = Language("zh-CN", "中文", _read("zh-CN"))
LANGUAGES = (ENGLISH, CHINESE)


def install(
    environment: Environment, language: Language, final: Callable[[object], object]
) -> None:
    """Give the templates of an environment the texts of a language: `_("…")` and `{% trans %}` for
    texts of a template, the filters `word` and `local` for values.

    The texts of templates are the console's own HTML. A value in one goes through `final` and is
    escaped, as it is anywhere else in a template.
    """
    environment.add_extension("jinja2.ext.i18n")
    environment.newstyle_gettext = True  # type: ignore[attr-defined]  # values come to gettext

    def gettext(text: str, /, **values: object) -> Markup:
        shown = {name: final(value) for name, value in values.items()}
        return Markup(language.say(text)) % shown  # noqa: S704

    environment.globals |= {"_": gettext, "gettext": gettext}
    environment.filters |= {"word": language.word, "local": language.local}


def chosen(request: web.Request) -> Language:
    """The language of a visitor: that of the cookie, or the one that the browser likes best."""
    cookie = request.cookies.get(COOKIE, "")
    for one in LANGUAGES:
        if one.code == cookie:
            return one
    return accepted(request.headers.get("Accept-Language", ""))


def accepted(header: str) -> Language:
    """The console's language that an Accept-Language prefers; English where it names none."""
    best, most = ENGLISH, 0.0
    for part in header.split(",")[:RANGES_MAX]:
        name, _, weight = part.strip().partition(";")
        q = _weight(weight)
        main = name.strip().lower().split("-")[0]
        found = next((one for one in LANGUAGES if one.code.split("-")[0] == main), None)
        if found is not None and q > most:
            best, most = found, q
    return best


def _weight(text: str) -> float:
    """The weight of a range; 0 for one that is none."""
    text = text.strip()
    if not text:
        return 1.0
    name, _, value = text.partition("=")
    digits = value.strip()
    if name.strip() != "q" or len(digits) > 5 or not digits.replace(".", "", 1).isdecimal():
        return 0.0
    return min(1.0, float(digits)) if digits.isascii() else 0.0
