"""`aerobee ingest`: a topic becomes Parquet, JSON or CSV files, through Spark.

Spark and Java are only needed here, so what is missing is said with the command that brings it.
"""

import argparse
import time
from typing import Any

from tqdm import tqdm

from ..client.start_from import FIRST, TIMESTAMP, StartFrom
from .failed import Failed

INSTALL = 'pip install "aerobee[spark]"'


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of `aerobee ingest`."""
    parser.description = (
        "Write the messages that a topic holds now to files, one row a message, read by Spark in "
        "parallel: on this machine or, with --master, on a cluster."
    )
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("--to", required=True, dest="target", metavar="DIR", help="a new folder, or a Spark URI")
    add("--format", choices=("parquet", "json", "csv"), default="parquet")
    add("-n", "--namesrv", metavar="ADDR;ADDR", help="name servers (127.0.0.1:9876)")
    add("--master", default="local[*]", metavar="URL", help="a Spark cluster (this machine)")
    add(
        "--from",
        dest="start",
        default="earliest",
        metavar="WHERE",
        help="earliest (the default), ms since the epoch, or a time like 2030-01-31T12:00",
    )
    add("--overwrite", action="store_true", help="replace what is in DIR")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files and say how many rows are in them."""
    start = StartFrom.read(int(options.start) if options.start.isdecimal() else options.start)
    if start.where not in (FIRST, TIMESTAMP):
        raise Failed(f"--from {options.start} would write nothing; give earliest or a time")
    try:
        from ..spark import ingest, session
    except ImportError as wrong:
        raise Failed(f"{wrong.name or wrong} is not installed; run {INSTALL}") from wrong
    job = ingest.Ingest(
        topic=options.topic,
        target=options.target,
        format=options.format,
        name_server=options.namesrv,
        master=options.master,
        start=start,
        overwrite=options.overwrite,
    )
    begin = time.monotonic()
    try:
        ingest.check_target(job)
        session.check_java()
        span = ingest.measure(job)
        with _progress(span.messages) as bar:
            rows = ingest.ingest(job, span, lambda count: _show(bar, count))
            _show(bar, rows)
    except session.SparkFailed as wrong:
        raise Failed(str(wrong)) from wrong
    seconds = time.monotonic() - begin
    print(
        f"wrote {rows:,} row{'' if rows == 1 else 's'} of {options.topic} as {options.format} "
        f"to {options.target} in {seconds:.1f} s"
    )
    return 0


def _progress(total: int) -> "tqdm[Any]":
    # Unlike a pipe's, a bar for nobody costs nothing here: it is drawn on a terminal only.
    return tqdm(total=total, unit=" rows", unit_scale=True, desc="ingesting", disable=None)


def _show(bar: "tqdm[Any]", count: int) -> None:
    bar.update(count - bar.n)
