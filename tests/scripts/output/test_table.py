"""The cells of tables."""

from datetime import datetime

import pytest
from aerobee.scripts.output.table import latest

AT_MS = round(datetime(2030, 1, 31, 12).timestamp() * 1000)


@pytest.mark.parametrize(
    ("times_ms", "text"),
    [
        ([], "never"),
        ([0, 0], "never"),
        ([-1], "-"),
        ([0, -1], "-"),
        ([-1, AT_MS, 0, AT_MS - 1], "2030-01-31 12:00:00"),
    ],
)
def test_the_latest_time_is_told_or_why_there_is_none(times_ms: list[int], text: str) -> None:
    assert latest(times_ms) == text
