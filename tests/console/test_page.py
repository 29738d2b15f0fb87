"""The status page as text: what is shown, how numbers look, and where it stops."""

from aerobee.console.page import ROWS_MAX, render


def test_numbers_have_separators_and_stand_to_the_right() -> None:
    text = render(("t", [], [("Topics", ["Name", "Stored"], [["orders", 1234567]])]), None)
    assert '<td class="number" data-column="Stored"><span>1,234,567</span></td>' in text
    assert '<th class="number">Stored</th>' in text
    assert '<td data-column="Name"><span>orders</span></td>' in text


def test_an_empty_table_says_so() -> None:
    assert "None yet" in render(("t", [], [("Topics", ["Name"], [])]), None)


def test_a_long_table_is_cut_and_says_by_how_much() -> None:
    rows = [[f"topic-{number}"] for number in range(ROWS_MAX + 7)]
    text = render(("t", [], [("Topics", ["Name"], rows)]), None)
    assert f"topic-{ROWS_MAX - 1}<" in text
    assert f"topic-{ROWS_MAX}<" not in text
    assert "and 7 more" in text


def test_numbers_come_first_and_apart_from_texts() -> None:
    text = render(("t", [("Store", "/data"), ("Connections", 12_345)], []), None)
    figures, _, texts = text.partition('<dl class="facts">')
    assert '<dl class="figures"><div><dt>Connections</dt><dd>12,345</dd></div></dl>' in figures
    assert "<dt>Store</dt>" in texts


def test_a_path_may_break_behind_its_slashes() -> None:
    text = render(("t", [("Store", "/var/lib/<aerobee>")], []), None)
    assert "<dd>/<wbr>var/<wbr>lib/<wbr>&lt;aerobee&gt;</dd>" in text


def test_title_facts_and_fault_are_escaped() -> None:
    text = render(("<b>", [("<i>", "<u>")], []), "<s>")
    assert not any(mark in text for mark in ("<b>", "<i>", "<u>", "<s>"))


def test_the_page_links_to_a_console_that_is_known() -> None:
    assert ">console<" not in render(("t", [], []), None)
    text = render(("t", [], []), None, console='http://127.0.0.1:8082/"<b>')
    assert '<a href="http://127.0.0.1:8082/&quot;&lt;b&gt;">console</a>' in text
