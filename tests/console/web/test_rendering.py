"""Values as a page shows them; vendored files are what they say."""

import hashlib
import re

import pytest
from aerobee.console.web.rendering import (
    STATIC,
    age,
    clock,
    environment,
    linker,
    size,
    spark,
    to_json,
    visible,
    when,
)

OWN_LINES_MAX = 400


def test_every_value_is_escaped_made_visible_or_not_known() -> None:
    template = environment().from_string("{{ a }}|{{ b }}|{{ c | number }}|{{ d }}|{{ none }}")
    text = template.render(a="<b>\u202e\x00", b=None, c=None, d=0)
    unknown = '<span class="unknown">not known</span>'
    assert text == f"&lt;b&gt;\\u202e\\x00|{unknown}|{unknown}|0|{unknown}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.3, "below 1 s"), (61, "1 min 1 s"), (90_061, "1 d 1 h"), (3_600, "1 h")],
)
def test_a_time_span_has_two_units(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_a_time_is_utc_for_people_and_programs() -> None:
    assert "2023-11-14 22:13:20.000 UTC" in when(1_700_000_000_000)
    assert 'datetime="2023-11-14T22:13:20+00:00"' in when(1_700_000_000_000)
    assert ">22:13:20 UTC<" in clock(1_700_000_000_000)
    assert "which is no time" in when(1 << 62) == clock(1 << 62)
    assert "which is no time" in when(-5)


def test_sizes_lines_and_json() -> None:
    assert [size(one) for one in (0, 1_023, 1_024, 5 << 30)] == [
        "0 bytes",
        "1,023 bytes",
        "1.0 KiB",
        "5.0 GiB",
    ]
    assert "no history" in spark([None, 1.0])
    assert "0.0,2.0 300.0,38.0" in spark([4.0, None, 0.0])
    assert to_json({"a": [1, None], "b": b"\x01", "c": "\u202e"}) == (
        b'{"a": [1, null], "b": "01", "c": "\\u202e"}'
    )


def test_a_link_has_the_cluster_and_leaves_out_what_is_empty() -> None:
    link = linker("/x", "a&b")
    assert link("topics", page=2, q="", sort="-name") == "/x/topics?cluster=a%26b&page=2&sort=-name"
    assert (
        link("topic", name="%\ud800\u202e /") == "/x/topic?cluster=a%26b&name=%25%3F%E2%80%AE+%2F"
    )


def test_letters_of_all_languages_stay_visible() -> None:
    assert visible("é 中文 \n\t עברית") == "é 中文 \n\t עברית"
    assert visible("\ud800\u200b\x7f") == "\\ud800\\u200b\\x7f"


def test_vendored_files_have_the_hashes_that_are_written_down() -> None:
    rows = re.findall(
        r"^\| (\S+) \| .* \| ([0-9a-f]{64}) \|$", (STATIC / "VENDOR.md").read_text(), re.M
    )
    assert len(rows) == 5
    for name, digest in rows:
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name


def test_the_console_s_own_script_is_short() -> None:
    assert len((STATIC / "console.js").read_text().splitlines()) <= OWN_LINES_MAX
