"""`aerobee mirror`: a copy of topics, messages and consumer offsets in another cluster, kept up to
date.

It needs no file of its own: the copies say how far it is. End it, and begin it again, anywhere.
"""

import argparse
import asyncio
import time

from ...client.base.security import Security
from ...client.base.start_from import FIRST, LAST
from ...client.base.stop_signals import Stop, stop_signals
from ...client.base.words import counted
from ...client.mirror.mirror import Mirror, Report
from .. import logs
from ..begin_at import TIMES, start_of
from ..output.sanitize import json_line, sanitize

REPORT_SECONDS = 10.0
REPORT_SECONDS_MAX = 3_600.0
FROM, TO = "AEROBEE_FROM", "AEROBEE_TO"  # prefixes of variables


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = (
        f"Keys and TLS of each side are in the environment: ${FROM}_ACCESS_KEY, "
        f"${FROM}_SECRET_KEY, ${FROM}_TLS, ${FROM}_TLS_CA, and the same with {TO}."
    )
    add = parser.add_argument
    add("--from", dest="source", required=True, metavar="ADDR;ADDR", help="name servers")
    add("--to", dest="target", required=True, metavar="ADDR;ADDR", help="name servers")
    add("--topics", default=".*", metavar="REGEX", help="which topics; the whole name (all)")
    add("--groups", default=".*", metavar="REGEX", help="which consumer groups (all)")
    add(
        "--start",
        default="earliest",
        metavar="WHERE",
        help=f"where a queue without copies begins: earliest (the default), latest, {TIMES}",
    )
    add("--once", action="store_true", help="end when all that is there now is copied")
    add("--relay", action="store_true", help="copy what another mirror has copied, too")
    add("--name", metavar="NAME", help="of the source in the copies (its cluster's)")
    add(
        "--rename",
        type=_rename,
        metavar="REGEX=TEXT",
        help="put TEXT for what fits in names of topics and groups: '\\.=-' for Kafka's dots",
    )
    add(
        "--report",
        type=_seconds,
        default=REPORT_SECONDS,
        metavar="S",
        help=f"seconds between two lines about the progress ({REPORT_SECONDS:g})",
    )
    add("--json", action="store_true", help="the progress as objects, one a line")
    logs.add_options(parser, "warning", logs.FULL)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Copies until a signal comes, or all is there; 1 when something can't be copied."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    start = start_of(options.start, latest=True, option="--start")
    stop = Stop()
    async with Mirror(
        options.source,
        options.target,
        topics=options.topics,
        groups=options.groups,
        start={FIRST: "earliest", LAST: "latest"}.get(start.where, start.ms),
        relay=options.relay,
        cluster=options.name,
        rename=options.rename,
        source_security=Security.from_environment(prefix=FROM),
        target_security=Security.from_environment(prefix=TO),
    ) as mirror:
        with stop_signals(stop.tell):
            work = asyncio.create_task(mirror.copy_once() if options.once else mirror.run())
            lines = asyncio.create_task(_print(mirror, options))
            told = asyncio.create_task(stop.gently.wait())
            await asyncio.wait({work, lines, told}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, lines, told):
                if not task.done():
                    task.cancel()
            results = await asyncio.gather(work, lines, told, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result
        report = mirror.report()
        print(_line(report, None, options.json), flush=True)
        return 1 if report.failures or (options.once and report.lag) else 0


async def _print(mirror: Mirror, options: argparse.Namespace) -> None:
    before, at = 0, time.monotonic()
    while True:
        await asyncio.sleep(options.report)
        report, now = mirror.report(), time.monotonic()
        rate = (report.copied - before) / (now - at)
        before, at = report.copied, now
        print(_line(report, rate, options.json), flush=True)


def _line(report: Report, rate: float | None, as_json: bool) -> str:
    if as_json:
        found = {
            "topics": report.topics,
            "queues": report.queues,
            "copied": report.copied,
            "lag": report.lag,
            "lag_seconds": report.lag_ms / 1000,
            "failures": list(report.failures),
        }
        if rate is not None:
            found["copied_per_second"] = round(rate, 1)
        return json_line(found)
    lag = "no lag"
    if report.lag:
        lag = f"lag {counted(report.lag, 'message')}"
        if report.lag_ms:
            lag += f", {report.lag_ms / 1000:,.0f} s"
    speed = "" if rate is None else f" ({rate:,.0f} a second)"
    said = (
        f"{counted(report.copied, 'message')} copied{speed}, {lag}, "
        f"{counted(report.topics, 'topic')}, {counted(report.queues, 'queue')}"
    )
    return "\n".join([said, *(f"  fails: {sanitize(each)}" for each in report.failures)])


def _rename(text: str) -> tuple[str, str]:
    pattern, sign, name = text.rpartition("=")
    if not sign or not pattern:
        raise argparse.ArgumentTypeError(f"{text!r} is not REGEX=TEXT, such as '\\.=-'")
    return pattern, name


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= REPORT_SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds above 0 and up to {REPORT_SECONDS_MAX:g}"
        )
    return found
