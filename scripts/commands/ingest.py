"""`aerobee ingest`: a topic becomes Parquet, JSON, CSV or Delta files, once or as a stream.

Only this command needs Spark and Java; an error names the command that installs them.
"""

import argparse
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...client.base.start_from import StartFrom
from ...client.base.words import counted
from ...spark.options import FORMATS, MALFORMED
from ..begin_at import add_from, start_of
from ..connecting import add_connection, security
from ..output.command_error import SIGNALLED, CommandError
from ..output.progress import rows_bar

if TYPE_CHECKING:
    from ...spark import ingest

INSTALL = "pip install 'aerobee[spark]'"
PARTS = ("pyspark", "py4j", "pyarrow", "pandas")  # the packages of that extra


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of `aerobee ingest`."""
    parser.description = (
        "Write the messages that a topic holds now to files, one row a message, read by Spark in "
        "parallel: on this machine or, with --master, on a cluster. With --available-now or "
        "--continuous the same command goes on where it ended, no row lost or twice."
    )
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("--to", required=True, dest="target", metavar="DIR", help="a new folder, or a Spark URI")
    add("--format", choices=FORMATS, help="by the ending of DIR, else parquet")
    add("--master", default="local[*]", metavar="URL", help="a Spark cluster (this machine)")
    add_from(parser, latest=False)
    add("--overwrite", action="store_true", help="replace what is in DIR")
    add(
        "--partition-by",
        metavar="COLUMN,COLUMN",
        help="a folder for each value of these columns; date and hour are of the time of storing",
    )
    add("--parse", choices=("json",), help="typed columns out of bodies; needs --schema")
    add(
        "--schema",
        metavar="SCHEMA",
        help="'id bigint, price double', a schema in JSON, or a file with one",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--available-now", action="store_true", help="what is new since the last time, then end"
    )
    how.add_argument(
        "--continuous", action="store_true", help="go on until Ctrl-C or SIGTERM says to end"
    )
    add("--checkpoint", metavar="DIR", help="where a stream keeps how far it is (DIR.checkpoint)")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files and print the number of rows."""
    _check(options)
    start = start_of(options.start, latest=False)
    missing = [name for name in PARTS if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"ingest works through Spark, of which {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed; run {INSTALL}"
        )
    from ...spark import session

    begin = time.monotonic()
    try:
        with session.ended_by_signals():
            written = _write(options, start)
    except session.SparkFailed as wrong:
        raise CommandError(str(wrong)) from wrong
    except session.Stopped as stopped:
        print(f"aerobee ingest: stopped; {_what_now(options)}", file=sys.stderr)
        return SIGNALLED + stopped.number
    seconds = time.monotonic() - begin
    good = written.rows - written.malformed
    rest = ""
    if options.schema is not None:
        bad = counted(written.malformed, "malformed one")
        rest = f", and {bad} to {options.target.rstrip('/')}{MALFORMED},"
    print(
        f"wrote {counted(good, 'row')} of {options.topic} as {options.format} "
        f"to {options.target}{rest} in {seconds:.1f} s"
    )
    return 0


def _write(options: argparse.Namespace, start: StartFrom) -> "ingest.Written":
    """Check everything possible without Spark, then run it; returns the numbers of rows."""
    from ...spark import ingest, ingest_stream, session
    from ...spark.bodies import check_schema, read_schema_text

    follow = ingest.AVAILABLE_NOW if options.available_now else None
    follow = ingest.CONTINUOUS if options.continuous else follow
    job = ingest.Ingest(
        topic=options.topic,
        target=options.target,
        format=options.format,
        name_server=options.namesrv,
        master=options.master,
        start=start,
        overwrite=options.overwrite,
        partition_by=_columns(options.partition_by),
        schema=None if options.schema is None else read_schema_text(options.schema),
        follow=follow,
        checkpoint=options.checkpoint,
        security=security(options),
    )
    if job.schema is not None:
        check_schema(job.schema)
    ingest.check_target(job) if follow is None else ingest_stream.check_stream(job)
    session.check_java()
    span = ingest.measure(job)  # an unknown topic is reported before Spark starts
    count = counted(span.messages, "message")
    print(
        f"{job.topic} holds {count}{' to be read' if follow is None else ''}; starting Spark on "
        f"{job.master}, which takes some seconds",
        file=sys.stderr,
        flush=True,
    )
    with rows_bar(f"ingesting {job.topic}", span.messages if follow is None else None) as show:
        if follow is None:
            written = ingest.ingest(job, span, show)
        else:
            written = ingest_stream.follow(job, show)
        show(written.rows, None)
    return written


def _what_now(options: argparse.Namespace) -> str:
    """The advice after a signal."""
    if options.available_now or options.continuous:
        return "the same command goes on"
    return (
        f"{options.target} is not complete or not there; the same command with --overwrite "
        "writes it from the start"
    )


def _check(options: argparse.Namespace) -> None:
    """CommandError when options contradict each other. Fills in the format."""
    ending = options.target.rstrip("/").rpartition(".")[2]
    if options.format is None:
        options.format = ending if ending in FORMATS else "parquet"
    elif ending in FORMATS and ending != options.format:
        raise CommandError(
            f"--to {options.target} ends like {ending}, and --format is {options.format}; leave "
            "one out, or give another folder"
        )
    streamed = options.available_now or options.continuous
    if (options.parse is None) != (options.schema is None):
        raise CommandError("--parse and --schema belong together; give both or none")
    if options.overwrite and streamed:
        raise CommandError("--overwrite is for a table written once; a stream goes on with its own")
    if options.checkpoint and not streamed:
        raise CommandError("--checkpoint is for a stream; add --available-now or --continuous")


def _columns(text: str | None) -> tuple[str, ...]:
    return tuple(name for part in (text or "").split(",") if (name := part.strip()))
