"""What `--from` takes: places, times, and how long ago."""

from datetime import datetime

import pytest
from aerobee.client.base.start_from import FIRST, LAST, TIMESTAMP, StartFrom
from aerobee.scripts.begin_at import start_of
from aerobee.scripts.output.command_error import CommandError

NOW = datetime(2030, 1, 31, 12, 30)


def at(text: str) -> StartFrom:
    return StartFrom(TIMESTAMP, round(datetime.fromisoformat(text).timestamp() * 1000))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", StartFrom(FIRST)),
        ("latest", StartFrom(LAST)),
        ("90s", at("2030-01-31T12:28:30")),
        ("30m", at("2030-01-31T12:00")),
        ("1h", at("2030-01-31T11:30")),
        ("2d", at("2030-01-29T12:30")),
        ("999999d", StartFrom(TIMESTAMP, 0)),
        ("today", at("2030-01-31T00:00")),
        ("yesterday", at("2030-01-30T00:00")),
        ("1700000000000", StartFrom(TIMESTAMP, 1_700_000_000_000)),
        ("2030-01-31T12:00", at("2030-01-31T12:00")),
        ("2030-01-31T12:00+00:00", at("2030-01-31T12:00+00:00")),
    ],
)
def test_each_text_is_a_place(text: str, place: StartFrom) -> None:
    assert start_of(text, latest=True, now=NOW) == place


@pytest.mark.parametrize(
    "text", ["", "1x", "1.5h", "h", "-1h", "tomorrow", "9" * 20, "9" * 5_000, "1234567h"]
)
def test_what_is_none_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(
        CommandError, match=f"--from {text} is no place to begin; give earliest, latest"
    ):
        start_of(text, latest=True, now=NOW)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("9" * 17, 99_999_999_999_999_999),
        ("253402300800000", 253_402_300_800_000),
        ("9999-12-31T23:59-12:00", 253_402_343_940_000),
        ("1969-12-31T23:59:59+00:00", -1_000),
        ("0001-01-01T00:00+00:00", -62_135_596_800_000),
    ],
)
def test_a_time_of_no_year_from_1970_to_9999_is_refused_with_both_limits(
    text: str, ms: int
) -> None:
    with pytest.raises(CommandError) as refused:
        start_of(text, latest=True, now=NOW, option="--start")
    assert str(refused.value) == (
        f"--start {text} is {ms} ms since the epoch; give a time of 0 to 253402300799999 ms, the "
        "years 1970 to 9999 in UTC"
    )


def test_the_first_and_the_last_ms_are_times() -> None:
    for ms in (0, 253_402_300_799_999):
        assert start_of(str(ms), latest=False, now=NOW) == StartFrom(TIMESTAMP, ms)


def test_where_latest_would_read_nothing_it_is_refused() -> None:
    with pytest.raises(
        CommandError, match="--from latest is no place to begin; give earliest, ms since"
    ):
        start_of("latest", latest=False, now=NOW)
