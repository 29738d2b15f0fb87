"""Where reading a topic starts: `--from` of `aerobee sub` and `ingest`, `--start` of `mirror`.

A time without a zone is local time.
"""

import argparse
import re
from datetime import datetime, timedelta

from ..client.base.start_from import LAST, TIMESTAMP, StartFrom
from ..client.errors import ClientError
from .output.command_error import CommandError

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
DAYS = {"today": 0, "yesterday": 1}
TIMES = (
    "ms since the epoch, 30m or 2h or 1d (that long ago), today, yesterday, or a time like "
    "2030-01-31T12:00"
)
MS_MAX = 253_402_300_799_999  # the end of the year 9999 in UTC, the last that a time can have


def add_from(parser: argparse.ArgumentParser, *, latest: bool) -> None:
    """Adds `--from`; with `latest` that start is accepted as well, and the default."""
    places = "earliest, latest (the default), " if latest else "earliest (the default), "
    parser.add_argument(
        "--from",
        dest="start",
        default="latest" if latest else "earliest",
        metavar="WHERE",
        help=places + TIMES,
    )


def start_of(
    text: str, *, latest: bool, now: datetime | None = None, option: str = "--from"
) -> StartFrom:
    """The start that the text of `option` means at `now` (default: the present).

    CommandError, with all accepted forms, for any other text, and for a time before 1970 or after
    the year 9999.
    """
    found = _place(text.strip(), datetime.now() if now is None else now)
    if found is None or (found.where == LAST and not latest):
        places = "earliest, latest, " if latest else "earliest, "
        raise CommandError(f"{option} {text} is no place to begin; give {places}{TIMES}")
    if not 0 <= found.ms <= MS_MAX:
        raise CommandError(
            f"{option} {text} is {found.ms} ms since the epoch; give a time of 0 to {MS_MAX} ms, "
            "the years 1970 to 9999 in UTC"
        )
    return found


def _place(text: str, now: datetime) -> StartFrom | None:
    span = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if span is not None:
        ago = timedelta(**{UNITS[span[2]]: int(span[1])})
        ms = round(now.timestamp() * 1000) - ago // timedelta(milliseconds=1)
        return StartFrom(TIMESTAMP, max(0, ms))
    if text in DAYS:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return StartFrom.read(midnight - timedelta(days=DAYS[text]))
    try:
        return StartFrom.read(int(text) if text.isdecimal() else text)
    except (ClientError, ValueError, OverflowError):  # the latter two of a year that is none
        return None
