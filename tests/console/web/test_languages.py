"""Pages in Chinese: each text has its translation, values stay escaped, and a visitor chooses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.console.access.rights import Right
from aerobee.console.access.trail import Ending
from aerobee.console.actions import ledger
from aerobee.console.actions.action import State
from aerobee.console.actions.brokers import ALLOWED
from aerobee.console.actions.redrive import Phase
from aerobee.console.actions.registry import ActionRegistry
from aerobee.console.actions.topics import TYPES
from aerobee.console.client_sentences import SENTENCES, SYSTEM_SENTENCES
from aerobee.console.findings.rules import Severity
from aerobee.console.texts import SEPARATORS, Text, TextError
from aerobee.console.web.languages import CHINESE, COOKIE, ENGLISH, accepted
from aerobee.console.web.rendering import HERE, age, environment, number, size, spark, when
from aerobee.console.web.routes import PAGES
from aerobee.console.web.themes import THEMES
from aerobee.protocol import codes
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.command import Response
from aerobee.protocol.filters import sql92
from jinja2 import nodes
from yarl import URL

from ..fake_cluster import Shop
from .site import PATHS, Parsed, Site, site_of_a_shop
from .test_hostile import queries

HOSTILE = "<b>%(x)s\u202e"
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
# RocketMQ's own words, which are the same in every language.
SAME = {*ALLOWED, *TYPES}
# What a template has beside its texts.
NAMES = {"aerobee", "console", "RocketMQ"}


site = pytest.fixture(site_of_a_shop, name="site")


def texts_of_templates() -> Iterator[str]:
    """The texts in templates, as jinja2 reads them."""
    found = environment()
    for path in TEMPLATES:
        for _, _, text in found.extract_translations(path.read_text("utf-8")):  # type: ignore[attr-defined]
            yield text if isinstance(text, str) else text[0]  # the rest are values


def texts_of_programs() -> Iterator[str]:
    """The patterns of `Text`, `Language.say`, plans and errors, the sentences of the client, and
    the faults of expressions."""
    yield from SENTENCES
    yield from SYSTEM_SENTENCES
    yield from SEPARATORS
    yield from texts_of_expressions()
    errors = {"__init__", *(one.__name__ for one in TextError.__subclasses__())}
    for path in sorted(HERE.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            texts = node.args[1:] if name in ("refusal", "counted") else node.args[:1]
            makers = {"Text", "counted", "say", "note", "refuse", "refusal", *errors}
            for text in texts if name in makers else ():
                if isinstance(text, ast.Constant):
                    assert isinstance(text.value, str)
                    # An error takes a text without values as it is, such as a broker's remark.
                    assert name not in errors or node.keywords, f"{path.name}:{node.lineno}"
                    yield text.value


def texts_of_expressions() -> Iterator[str]:
    """The patterns of `SqlError`."""
    for node in ast.walk(ast.parse(Path(sql92.__file__).read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("SqlError", "_fault"):
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            assert texts or isinstance(node.args[0], ast.Name), f"line {node.lineno} has no pattern"
            yield from map(str, texts)


def words() -> Iterator[str]:
    """Titles, labels and states, which pages show by the filter `word`."""
    for page in PAGES:
        yield page.title
        yield from filter(None, [page.section])
    yield from THEMES.values()
    for action in ActionRegistry(Path("unused")).actions.values():
        yield action.title
        for field in action.fields:
            yield field.label
            yield from (text for text in (field.note, *field.choices) if text)
    for kind in (State, Ending, Phase, Severity):
        yield from (one.value for one in kind)
    yield from (ledger.SENT, ledger.REFUSED, ledger.UNKNOWN)
    yield from (one.name.lower() for one in Right)
    yield from ("text", "hex", "masked", "hidden", "none")  # kinds of bodies


def test_each_text_is_translated_and_no_translation_is_unused() -> None:
    used = {*texts_of_templates(), *texts_of_programs(), *words()} - SAME
    assert sorted(used - CHINESE.texts.keys()) == [], "add these to texts/zh-CN.json"
    assert sorted(CHINESE.texts.keys() - used) == [], "take these out of texts/zh-CN.json"


def test_a_translation_has_the_values_of_its_text_and_no_markup() -> None:
    values = re.compile(r"%\(\w+\)s|%.?")
    for text, chinese in CHINESE.texts.items():
        assert sorted(values.findall(text)) == sorted(values.findall(chinese)), text
        assert not set(text + chinese) & set('<>&"'), text


def test_templates_have_no_text_of_their_own_and_mark_no_value_as_text() -> None:
    found = environment()
    for path in TEMPLATES:
        source = path.read_text("utf-8")
        plain = re.sub(
            r"<[^>]*>", " ", re.sub(r"{%.*?%}|{{.*?}}|{#.*?#}", "", source, flags=re.DOTALL)
        )
        assert set(re.findall(r"[A-Za-z]{2,}", plain)) <= NAMES, path.name
        assert not re.search(r'(aria-label|title|alt)="[A-Za-z]', source), path.name
        tree = found.parse(source)
        for call in tree.find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name in ("_", "gettext"):
                assert isinstance(call.args[0], nodes.Const), f"{path.name}:{call.lineno}"


@pytest.mark.parametrize("language", [ENGLISH, CHINESE])
def test_values_in_a_text_are_escaped_made_visible_or_not_known(language: Any) -> None:
    template = environment(language).from_string(
        '{{ _("Topic %(name)s", name=a) }}|{% trans name=a %}Topic {{ name }}{% endtrans %}|'
        '{{ b | local }}|{{ a | local }}|{{ a | word }}|{{ _("Cut: %(why)s.", why=none) }}'
    )
    told = Text("Topic %(name)s", name=Text("Topic %(name)s", name=HOSTILE))
    shown = template.render(a=HOSTILE, b=told)
    safe = "&lt;b&gt;%(x)s\\u202e"
    topic = "Topic" if language is ENGLISH else "主题"
    unknown = "not known" if language is ENGLISH else "未知"
    first, second, third, fourth, fifth, sixth = shown.split("|")
    assert first == second == f"{topic} {safe}"
    assert third == f"{topic} {topic} {safe}"
    assert fourth == fifth == safe
    assert f'<span class="unknown">{unknown}</span>' in sixth


def test_only_our_own_words_are_translated() -> None:
    assert CHINESE.word("done") == "已完成"
    assert CHINESE.local("done") == "done"  # the name of a topic, or a broker's remark
    assert CHINESE.word("orders") == "orders"
    assert CHINESE.word(None) is None


def test_figures_have_chinese_units() -> None:
    assert "未知" in number(None, CHINESE)
    assert age(90_061, CHINESE) == "1 天 1 小时"
    assert age(0, CHINESE) == "0 秒"
    assert size(12, CHINESE) == "12 字节"
    assert size(2_048, CHINESE) == "2.0 KiB"
    assert "不是有效时间" in when(-5, CHINESE)
    assert "最后 2.0" in spark([1.0, 2.0], CHINESE)


@pytest.mark.parametrize(
    ("header", "is_chinese"),
    [
        ("zh", True),
        ("zh-CN", True),
        ("zh-Hans-CN,zh;q=0.9,en;q=0.8", True),
        ("ZH-cn ; q=0.5", True),
        ("de, zh;q=0.4", True),
        ("en-GB,en;q=0.9,zh;q=0.8", False),
        ("en;q=0.3, zh;q=0.7", True),
        ("zh;q=0", False),
        ("", False),
        ("de", False),
        ("zh;q=nan", False),
        ("zh;q=x,,;;=,en", False),
        ("zh;q=" + "9" * 500, False),
        ("x," * 5_000 + "zh", False),
    ],
)
def test_the_browser_s_best_language_is_taken(header: str, is_chinese: bool) -> None:
    assert accepted(header) is (CHINESE if is_chinese else ENGLISH)


async def test_every_page_is_chinese_with_no_english_left(site: Site) -> None:
    english = {text for text, chinese in CHINESE.texts.items() if text != chinese}
    for path in [*(page.path for page in PAGES), "search", "actions", "redrives", "act/redrive"]:
        given = queries("orders").get(path) or PATHS.get(path, {})
        if path == "access":
            given = {}
        _, text, _ = await site.get(path, headers={"Accept-Language": "zh-CN"}, **given)
        page = Lines(text)
        assert page.elements[0] == ("html", {"lang": "zh-CN"}), path
        # RocketMQ's rules name an action Delete.
        assert page.lines & english <= ({"Delete"} if path == "access" else set()), path
        labels = {attrs.get("aria-label") for _, attrs in page.elements}
        assert not labels & english, path


class Lines(Parsed):
    """A page with its pieces of text, each stripped."""

    def __init__(self, text: str) -> None:
        self.lines: set[str] = set()
        super().__init__(text)

    def handle_data(self, data: str) -> None:
        self.lines.add(data.strip())


async def test_a_fault_and_the_login_are_chinese(site: Site) -> None:
    headers = {"Accept-Language": "zh"}
    status, text, _ = await site.get("nowhere", headers=headers)
    assert status == 404
    assert "未找到" in text
    login = f"{site.console.url}login"
    async with site.visitor() as other, other.get(login, headers=headers) as answer:
        assert "在终端打印新链接" in await answer.text()


async def test_what_programs_say_is_chinese_too(site: Site) -> None:
    headers = {"Accept-Language": "zh"}
    _, text, _ = await site.get("topics", headers=headers, sort="<i>")
    assert Parsed(text).text.count("sort 为 '<i>'") == 1
    _, text, _ = await site.get("message", headers=headers, **queries("orders")["message"])
    assert "(消息本身)" in text
    status, text = await site.post("act/topic-create/preview", {"topic": ""}, headers=headers)
    assert (status, "缺少“主题”" in text) == (400, True)
    # The value of a choice is the one that a form sends.
    options = [attrs for tag, attrs in Parsed(text).elements if tag == "option"]
    assert {"value": "read and write"} in options


async def test_findings_are_chinese_and_keep_the_names_of_the_cluster() -> None:
    shop = Shop("orders")
    runtime = KVTable({"subscriptionsDiffer_shop": "topic orders: a / <b>"}).encode()
    shop.broker.answers[codes.GET_BROKER_RUNTIME_INFO] = lambda *_: Response(body=runtime)
    await shop.start()
    async with Site({"main": shop.address}) as site:
        _, text, _ = await site.get("overview", headers={"Accept-Language": "zh"})
    await shop.stop()
    told = Parsed(text).text
    for part in (
        "消费者组 shop",
        "其成员的订阅不一致",
        "topic orders: a / <b>",
        "请让所有成员使用相同的订阅",
    ):
        assert part in told, part


async def test_json_stays_english(site: Site) -> None:
    _, english, _ = await site.get("api/brokers")
    _, chinese, _ = await site.get("api/brokers", headers={"Accept-Language": "zh"})
    assert '"role": "master"' in english
    assert '"role": "master"' in chinese
    status, text, _ = await site.get("api/topic", headers={"Accept-Language": "zh"})
    assert (status, "name is missing" in text) == (400, True)


async def test_a_visitor_chooses_a_language_and_goes_on_at_the_same_page(site: Site) -> None:
    page = Parsed(await site.html("topics", q="ord"))
    back = next(attrs["value"] for _, attrs in page.elements if attrs.get("name") == "back")
    assert back is not None
    codes = [attrs["value"] for _, attrs in page.elements if attrs.get("name") == "language"]
    assert codes == ["zh-CN"]
    headers = {"Origin": site.origin}
    async with site.session.post(
        f"{site.console.url}language",
        data={"language": "zh-CN", "back": back},
        headers=headers,
        allow_redirects=False,
    ) as answer:
        assert answer.status == 303
        assert answer.headers["Location"] == back
        cookie = answer.cookies[COOKIE]
    assert cookie["samesite"] == "Strict"
    assert cookie["httponly"]
    assert "/topics?q=ord" in back
    # The choice counts more than what the browser likes, and there is a way back.
    _, text, _ = await site.get("topics", headers={"Accept-Language": "en"})
    assert "消费者组" in text
    assert await site.post("language", {"language": "en", "back": back}) == (303, "")
    assert "消费者组" not in await site.html("topics")


async def test_after_the_answer_to_a_form_the_form_is_next(site: Site) -> None:
    status, text = await site.post("act/topic-create/preview", {"topic": ""})
    assert status == 400
    backs = [attrs["value"] for _, attrs in Parsed(text).elements if attrs.get("name") == "back"]
    assert set(backs) == {"/act/topic-create?cluster=main"}


@pytest.mark.parametrize("value", ["", "xx", "zh-CN;x", "<b>", "../zh-CN", "\\"])
async def test_nonsense_in_the_cookie_is_ignored(site: Site, value: str) -> None:
    site.session.cookie_jar.update_cookies({COOKIE: value}, URL(site.console.url))
    text = await site.html("topics")
    assert Parsed(text).elements[0] == ("html", {"lang": "en"})


async def test_a_visitor_chooses_a_theme_which_the_pages_keep(site: Site) -> None:
    assert "data-theme" not in Parsed(await site.html("topics")).elements[0][1]
    assert await site.post("theme", {"theme": "dark", "back": "/topics"}) == (303, "")
    assert Parsed(await site.html("topics")).elements[0][1]["data-theme"] == "dark"
    async with site.visitor() as other, other.get(f"{site.console.url}login") as answer:
        assert "data-theme" not in Parsed(await answer.text()).elements[0][1]
    status, text = await site.post("theme", {"theme": "<b>pink"})
    assert status == 400
    assert "give one of system, light, dark" in text
    assert "<b>" not in text
    assert await site.post("theme", {"theme": "system", "back": "/topics"}) == (303, "")
    assert "data-theme" not in Parsed(await site.html("topics")).elements[0][1]


async def test_a_choice_is_one_of_ours_and_comes_from_our_pages(site: Site) -> None:
    status, text = await site.post("language", {"language": "<b>xx", "back": "/topics"})
    assert status == 400
    assert "give one of en, zh-CN" in text
    assert "<b>" not in text
    away = {"Origin": "http://evil.example"}
    status, _ = await site.post("language", {"language": "zh-CN"}, headers=away)
    assert status == 403
    async with site.session.post(
        f"{site.console.url}language",
        data={"language": "zh-CN", "back": "//evil.example/"},
        headers={"Origin": site.origin},
        allow_redirects=False,
    ) as answer:
        assert answer.headers["Location"] == "/overview"


def said_by(folder: str) -> Iterator[str]:
    """The texts in the programs of a folder, those with values in their parts."""
    for path in sorted((HERE.parents[1] / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_each_sentence_of_the_client_is_one_that_it_says() -> None:
    text = "\n".join(
        one for folder in ("client", "protocol", "console/clusters") for one in said_by(folder)
    )
    for sentence in SENTENCES:
        for part in re.split(r"%\(\w+\)s", sentence):
            assert part.strip(" :;") in text, sentence
