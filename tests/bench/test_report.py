"""The report of the benchmark, and its verdicts."""

from __future__ import annotations

import pytest
from aerobee.bench import command
from aerobee.bench.report import HEAD, MISSED, Calls, Compared, Growth, Row, block, held, idle_share
from aerobee.bench.report import merged as merged_by

PARTS = ("sync", "recovery")


def merged(old: str, blocks: dict[str, str]) -> str:
    return merged_by(old, blocks, PARTS)


@pytest.mark.parametrize(
    ("wanted", "value", "reached"),
    [
        ("", -1.0, True),
        (">= 200,000", 200_000.0, True),
        (">= 200,000", 199_999.0, False),
        ("<= 1.1 times", 1.1, True),
        ("< 1 %", 1.0, False),
        (">= 60,000/s", 59_999.0, False),
        ("a value", 1.0, False),
        ("<= 1", float("nan"), False),
    ],
)
def test_a_mark_is_a_sign_and_a_number(wanted: str, value: float, reached: bool) -> None:
    assert held("Query", value, "{:g}", wanted).holds is reached


@pytest.mark.parametrize(
    ("row", "is_missed"),
    [
        (Compared("SEND", "messages/s", 1_000.0, 3_000.0, ">= 2.5"), False),
        (Compared("SEND", "messages/s", 1_000.0, 2_000.0, ">= 2.5"), True),
        (Compared("SEND", "times the p99 without", 9.0, 2.1, "<= 2 times"), True),
        (Compared("SEND", "times the p99 without", 1.0, 1.9, "<= 2 times"), False),
        (Calls("SEND", 11.9), False),
        (Calls("SEND", 12.1), True),
        (Growth("SEND", 100.0, 91.0), False),
        (Growth("SEND", 100.0, 90.0), True),
        (held("Query", 1.1, "{:.2f} ms", "<= 2 ms"), False),
        (held("Query", 2.1, "{:.2f} ms", "<= 2 ms"), True),
    ],
)
def test_the_report_says_of_each_mark_whether_it_was_reached(row: Row, is_missed: bool) -> None:
    words = ["--quick", "--scratch", "/somewhere"]
    report = block("rates", "Sends", words, 3, [row], 4.25, 0.874)
    assert report.count(MISSED) == is_missed
    assert f"| {' | '.join(row.cells())} |" in report
    assert "`scripts/bench --quick`" in report
    assert "/somewhere" not in report
    assert "was 4.2 when it began" in report
    assert "idle for 87% then" in report


def test_how_idle_the_cores_are_is_a_share() -> None:
    share = idle_share(0.05)
    assert share is None or 0 <= share <= 1


def test_what_was_not_measured_again_stays_in_the_report() -> None:
    def part(name: str, ratio: float) -> str:
        row = Compared("SEND", "messages/s", 1.0, ratio)
        return block(name, name, [], 3, [row], 0.0, None)

    sync, recovery = part("sync", 2.6), part("recovery", 0.3)
    whole = merged(merged("", {"recovery": recovery}), {"sync": sync})
    assert whole == f"{HEAD}{sync}{recovery}".rstrip("\n") + "\n"
    newer = part("recovery", 0.2)
    assert merged(whole, {"recovery": newer}) == whole.replace(recovery.strip(), newer.strip())
    assert merged(whole, {}) == whole
    told = whole.replace("Read the ratios", "It was a slow day. Read the ratios")
    assert told != whole
    assert merged(told, {"recovery": recovery}) == told
    others = whole + "\n<!-- timers: begin -->\nof others\n<!-- timers: end -->\n"
    assert merged(others, {"recovery": recovery}) == others


def test_a_new_figure_drops_nothing_of_the_page() -> None:
    page = command.REPORT.read_text()
    assert merged_by(page, {}, command.PARTS) == page
