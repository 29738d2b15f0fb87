"""No text of a page is painted over another, leaves its box, is cut or broken; nothing scrolls
sideways, numbers are aligned and the labels of charts are whole. A browser measures that."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from aerobee.console.web.rendering import STATIC
from aerobee.console.web.routes import ACTING, PAGES

from ...waiting import LONG
from .browser import needs_chromium, started
from .showroom import showroom

pytestmark = needs_chromium
browser = pytest.fixture(started, name="browser")

MEASURE = Path(__file__).with_name("boxes.js").read_text("utf-8")
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
TOLD_MAX = 3  # faults of one kind on one page that are told


async def faults(page: Any) -> list[str]:
    """What is wrong with the boxes of the page."""
    size = page.viewport_size
    found: list[str] = await page.evaluate(MEASURE, {"isWide": size == WIDE})
    return found


def told(name: str, size: dict[str, int], found: Iterable[str]) -> list[str]:
    """The faults of a page for a reader: each once, and not all of very many."""
    kinds: dict[str, list[str]] = {}
    for one in dict.fromkeys(found):
        kinds.setdefault(one.partition(":")[0], []).append(one)
    lines = []
    for kind, ones in kinds.items():
        lines += ones[:TOLD_MAX]
        if len(ones) > TOLD_MAX:
            lines.append(f"{kind}: {len(ones) - TOLD_MAX} more")
    return [f"{name} at {size['width']} px: {line}" for line in lines]


@pytest.mark.parametrize(
    ("language", "sizes"),
    [
        pytest.param(
            "en", (WIDE, NARROW), marks=[pytest.mark.interop, pytest.mark.smoke], id="english"
        ),
        pytest.param("zh-CN", (WIDE,), id="chinese-wide"),
        pytest.param("zh-CN", (NARROW,), id="chinese-narrow"),
    ],
)
async def test_every_text_of_every_page_is_whole_in_its_box_and_beside_the_others(
    browser: Any, language: str, sizes: tuple[dict[str, int], ...]
) -> None:
    wrong: list[str] = []
    async with showroom() as room:
        shown = {one.path for one in room.pages.values()}
        assert {one.path for one in (*PAGES, *ACTING)} <= shown, "a page has no picture"
        for size in sizes:
            context = await browser.new_context(viewport=size, locale=language)
            await room.admit(context)
            page = await context.new_page()
            page.set_default_timeout(1_000 * LONG)
            for name, one in room.pages.items():
                await room.open(page, one)
                assert await page.evaluate("document.documentElement.lang") == language, name
                wrong += told(name, size, await faults(page))
            await context.close()
    assert not wrong, "\n" + "\n".join(wrong)


# --- the measure itself --------------------------------------------------------------------------

STYLE = """<meta charset="utf-8"><style>
  body { margin: 8px; font: 16px/1.5 sans-serif; }
  table { border-collapse: collapse; } td { padding: 4px; border: 1px solid; }
</style>"""
# Pages with one fault each, and how it is told.
FAULTY = {
    "a line over another": (
        "<p>the first line</p><p style='margin-top: -34px'>the second line</p>",
        'overlap: "the first line" of p',
    ),
    "lines too near each other": (
        "<p style='width: 60px; line-height: .7; padding: 9px'>one two three four five</p>",
        'overlap: "one" of p',
    ),
    "a positioned text over its own element": (
        "<p style='position: relative'>a sentence <b style='position: absolute; left: 0'>bold</b>",
        "overlap: ",
    ),
    "a name beyond its cell": (
        "<table><tr><td style='max-width: 80px'>a-name-of-a-topic-without-any-break-opportunity"
        "_or_so_it_seems_here</td></tr></table>",
        "leaves td",
    ),
    "a word beyond its card": (
        "<div class='card' style='width: 70px'><p style='margin-right: -80px'>Administrators</p>",
        "leaves div.card",
    ),
    "a button that is too low": (
        "<button style='height: 10px; width: 80px; padding: 0; line-height: 60px'>Save</button>",
        "leaves button",
    ),
    "a text cut at its side": (
        "<p style='width: 60px; overflow: hidden; white-space: nowrap'>shipments of today</p>",
        'clipped: "shipments of today" of p',
    ),
    "a text cut below": (
        "<div style='height: 12px; overflow: clip'><p style='margin: 0'>shipments</p></div>",
        'clipped: "shipments" of p "shipments"',
    ),
    "an ellipsis without a title": (
        "<p style='width: 60px; overflow: hidden; white-space: nowrap; text-overflow: ellipsis'>"
        "shipments of today</p>",
        "clipped: ",
    ),
    "an ellipsis with another title": (
        "<p title='shipments' style='width: 60px; overflow: hidden; white-space: nowrap; "
        "text-overflow: ellipsis'>shipments of today</p>",
        "clipped: ",
    ),
    "a page that is wider than what the window shows": (
        "<style>html { overflow-x: hidden }</style>"
        "<p style='white-space: nowrap; width: 9000px'>" + "shipments of today " * 30,
        "page: the document is 90",
    ),
    "a page that is cut": (
        "<style>html { overflow-x: hidden } body { overflow-x: clip }</style>"
        "<p style='white-space: nowrap; width: 9000px'>" + "shipments of today " * 30,
        "is cut by body",
    ),
    "a word broken anywhere": (
        "<p style='width: 130px; word-break: break-all'>the administrators</p>",
        'broken: the word "administrators" of p',
    ),
    "a name broken at its hyphen": (
        "<table style='width: 60px'><tr><td>broker-a</td><td>10.0</td></tr></table>",
        'broken: the word "broker-a" of td "broker-a"',
    ),
    "a word of two elements that is broken": (
        "<table style='width: 60px'><tr><td>broker-<wbr><b>a</b></td></tr></table>",
        'broken: the word "broker-a" of td "broker-a"',
    ),
    "a page that scrolls sideways": (
        "<div style='width: 2000px; height: 4px'></div>",
        "page: the document is 20",
    ),
    "a table that scrolls sideways": (
        "<div class='table' style='width: 100px; overflow-x: auto'>"
        "<table style='width: 400px'><tr><td>orders</td></tr></table></div>",
        'scrolls: div.table "orders"',
    ),
    "a number at the left": (
        "<table style='width: 300px'><tr><td class='number'>12</td></tr></table>",
        'number: td.number "12" is aligned',
    ),
    "a number before a gap": (
        "<table style='width: 300px'><tr><td class='number' style='text-align: right'>12"
        "<span style='padding-left: 20px'></span></td></tr></table>",
        'number: "12" of td.number ends at',
    ),
}
GOOD = """<header style="position: sticky; top: 0; display: flex; gap: 8px">
  <a style="position: absolute; left: -999px" href="#main">To the content</a>
  <b>aerobee</b><button>Log out</button></header>
<main id="main" style="max-width: 1000px">
<span class="visually-hidden" style="position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap">for ears only</span>
<p style="width: 60px; line-height: 1.1">one two three <b>four <i>five</i></b> six</p>
<p style="width: 80px">消费者组的名称在此处换行 orders 除外</p>
<p style="width: 60px; overflow-wrap: anywhere">administrators</p>
<p style="width: 200px; overflow-wrap: anywhere">0123456789abcdef0123456789abcdef0123456789</p>
<p title="shipments of today" style="width: 60px; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis">shipments of <b>today</b></p>
<pre style="width: 100px; overflow: auto">a line of a body that is far longer than its box</pre>
<details><summary>More</summary>a hidden text<p style="margin-top: -40px">and more</p></details>
<div popover>a menu</div>
<div style="height: 30px; overflow: auto"><p>first</p><p>second</p></div>
<div style="position: relative; overflow: hidden; height: 40px">a box
  <p style="position: fixed; left: 700px; top: 300px; margin: 0">a menu that is open</p></div>
<table><tr><th>Topic</th><td class="number" style="text-align: right; width: 200px">12,000</td>
  <td style="white-space: nowrap">broker-a</td></tr></table>
</main>"""


async def reported(page: Any, html: str) -> list[str]:
    """The faults of a page of this body."""
    await page.set_content(f"<!doctype html><html lang='en'>{STYLE}{html}")
    return await faults(page)


async def test_a_fault_is_reported_with_its_element(browser: Any) -> None:
    page = await browser.new_page(viewport=WIDE)
    for name, (html, wanted) in FAULTY.items():
        found = await reported(page, html)
        assert any(wanted in one for one in found), (name, found)
        kinds = {one.split(":")[0] for one in found}
        assert len(kinds) == 1, (name, found)


async def test_a_good_page_has_no_fault(browser: Any) -> None:
    for size in (WIDE, NARROW):
        page = await browser.new_page(viewport=size)
        assert await reported(page, GOOD) == []


async def test_only_a_wide_page_must_not_scroll_in_its_boxes(browser: Any) -> None:
    html, _ = FAULTY["a table that scrolls sideways"]
    page = await browser.new_page(viewport=NARROW)
    assert await reported(page, html) == []


@pytest.mark.parametrize(("pixels", "are_whole"), [(50, False), (120, True)])
async def test_the_labels_of_a_chart_fit_its_axis(
    browser: Any, pixels: int, are_whole: bool
) -> None:
    page = await browser.new_page(viewport=WIDE, device_scale_factor=2)
    await page.set_content(
        f"{STYLE}<figure data-chart='x'></figure><figure data-chart='y'></figure>"
    )
    await page.add_style_tag(path=STATIC / "uPlot.min.css")
    await page.add_script_tag(path=STATIC / "uPlot.iife.min.js")
    await page.evaluate(
        """(pixels) => {
          const figure = document.querySelector("[data-chart]");
          const whole = (_, ticks) => ticks.map((one) => one.toLocaleString("en"));
          figure.chart = new uPlot({ width: 600, height: 200, legend: { show: false },
            axes: [{}, { size: pixels, values: whole }], series: [{}, { stroke: "red" }],
          }, [[1, 2, 3], [0, 400000000, 900000000]], figure);
          return new Promise((done) => requestAnimationFrame(() => done(true)));
        }""",
        pixels,
    )
    found = await faults(page)
    assert [one.split(":")[0] for one in found] == ["axis"] * len(found)
    assert bool(found) is not are_whole, found
