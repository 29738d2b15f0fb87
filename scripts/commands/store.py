"""`aerobee store check`, `dump`, `diff`, `rebuild`: tools for a store folder, without its broker.

The first three only read, and work while a broker, aerobee's or Java's, uses the folder. `rebuild`
makes new queues and a new index from the log and needs the folder for itself.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..numbers import whole
from ..output.command_error import CommandError
from ..output.progress import bytes_bar
from ..output.sanitize import json_line, sanitize
from ..output.table import table_lines

if TYPE_CHECKING:
    from ...store.base.settings import StoreSettings
    from ...store.inspect.findings import Report

LINES_DEFAULT = 20
NUMBER = whole("is no number from 0 on")
WHATS = ("log", "queue", "index", "checkpoint")


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of `aerobee store`."""
    parser.description = (
        "check: look through a whole store for damage. dump: print what stands in its files. "
        "diff: compare two stores, such as those of a master and its slave. rebuild: make queues "
        "and index anew from the log. All but rebuild only read, and also work on a store of the "
        "Java broker, and while a broker runs on it."
    )
    add = parser.add_argument
    add("action", choices=("check", "dump", "diff", "rebuild"))
    add("folder", type=Path, metavar="DIR", help="what the broker has as storePathRootDir")
    add(
        "what",
        nargs="?",
        metavar="WHAT",
        help=f"dump: {', '.join(WHATS)} (log); diff: the other DIR",
    )
    add("--json", action="store_true", help="for programs: one object a line")
    add("--topic", metavar="TOPIC", help="dump: only of this topic")
    add("--queue", type=NUMBER, metavar="N", help="dump: only of this queue")
    add("--from", type=NUMBER, dest="start", metavar="N", help="dump: log or queue offset (0)")
    add("-n", "--count", type=NUMBER, metavar="N", help=f"dump: lines ({LINES_DEFAULT})")
    add("-c", dest="file", type=Path, metavar="FILE", help="the broker's settings, for file sizes")
    add(
        "--set",
        "-s",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting by its RocketMQ name; without any the files tell their sizes",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do one of the four; 1 when check finds damage, or diff a difference."""
    _check_options(options)
    settings = _settings(options)
    if options.action == "check":
        return _check(options, settings)
    if options.action == "dump":
        return _dump(options, settings)
    if options.action == "diff":
        return _diff(options, settings)
    return _rebuild(options, settings)


def _check_options(options: argparse.Namespace) -> None:
    """CommandError for options of dump only; sets the defaults of dump."""
    if options.action == "diff":
        if options.what is None:
            raise CommandError("compare with what? write: aerobee store diff DIR DIR")
        options.other, options.what = Path(options.what), None
    elif options.what is not None and options.what not in WHATS:
        raise CommandError(f"{options.what!r} can't be dumped; give one of: {', '.join(WHATS)}")
    given = {
        "what to dump": options.what,
        "--topic": options.topic,
        "--queue": options.queue,
        "--from": options.start,
        "-n": options.count,
    }
    named = [name for name, value in given.items() if value is not None]
    if options.action != "dump" and named:
        raise CommandError(f"{named[0]} is for dump; {options.action} takes the whole store")
    options.what = options.what or "log"
    options.start = options.start or 0
    options.count = LINES_DEFAULT if options.count is None else options.count


def _check(options: argparse.Namespace, settings: "StoreSettings | None") -> int:
    from ...store.inspect.check import Sizes, check

    sizes = Sizes()
    if settings is not None:
        sizes = Sizes(
            settings.segment_bytes,
            settings.queue_file_bytes,
            settings.batch_queue_file_bytes,
            settings.index_slots,
            settings.index_entries,
            settings.commit_log_dir,
        )
    with bytes_bar("checking") as progress:
        report = check(options.folder, sizes, progress)
    if options.json:
        for finding in report.findings:
            print(json.dumps(finding.to_json()))
        parts = [asdict(part) for part in report.parts.values()]
        print(json.dumps({"root": str(report.root), "damaged": report.is_damaged, "parts": parts}))
    else:
        _print_report(report)
    return 1 if report.is_damaged else 0


def _print_report(report: "Report") -> None:
    for finding in report.findings:
        print(sanitize(finding.line))
    counts = sum(part.damaged + part.notes for part in report.parts.values())
    if counts > len(report.findings):
        print(f"… and {counts - len(report.findings):,} more, counted below")
    columns = ("PART", "FILES", "CHECKED", "", "DAMAGED", "NOTES")
    rows = [
        (part.name, part.files, part.checked, part.what, part.damaged, part.notes)
        for part in report.parts.values()
    ]
    for line in table_lines(columns, rows):
        print(line)
    damaged = sum(part.damaged for part in report.parts.values())
    print(f"{damaged:,} damaged" if damaged else "no damage found")


def _dump(options: argparse.Namespace, settings: "StoreSettings | None") -> int:
    lines = _lines(options, settings)
    if options.topic is not None and options.what == "log":
        lines = (line for line in lines if line.get("topic") == options.topic)
    if options.queue is not None and options.what == "log":
        lines = (line for line in lines if line.get("queue") == options.queue)
    for line in islice(lines, options.count):
        print(json_line(line) if options.json else sanitize(_text(line)))
    return 0


def _lines(
    options: argparse.Namespace, settings: "StoreSettings | None"
) -> Iterator[dict[str, Any]]:
    from ...store.inspect import dump

    log_folder = None if settings is None else settings.commit_log_dir
    if not (log_folder or options.folder / "commitlog").is_dir():
        raise CommandError(f"{options.folder} is no store: it has no folder commitlog")
    if options.what == "queue":
        if options.topic is None or options.queue is None:
            raise CommandError(
                "which queue? write: aerobee store dump DIR queue --topic TOPIC --queue N"
            )
        return dump.queue_lines(
            options.folder, options.topic, options.queue, options.start, log_folder
        )
    if options.what == "index":
        if settings is None:
            return dump.index_lines(options.folder)
        return dump.index_lines(options.folder, settings.index_slots, settings.index_entries)
    if options.what == "checkpoint":
        return dump.checkpoint_lines(options.folder)
    return dump.log_lines(options.folder, options.start, log_folder)


def _diff(options: argparse.Namespace, settings: "StoreSettings | None") -> int:
    from ...store.inspect.diff import diff

    log_folder = None if settings is None else settings.commit_log_dir
    with bytes_bar("comparing") as progress:
        differences = diff(options.folder, options.other, (log_folder, None), progress)
    if options.json:
        for each in differences.found:
            print(json.dumps(asdict(each)))
        print(json.dumps({"differences": differences.count, "parts": differences.counts}))
        return 1 if differences.count else 0
    for each in differences.found:
        print(sanitize(f"{each.part}: {each.text}"))
    left = differences.count - len(differences.found)
    if left:
        print(f"… and {left:,} more")
    print(f"{differences.count:,} different" if differences.count else "no difference found")
    return 1 if differences.count else 0


def _rebuild(options: argparse.Namespace, settings: "StoreSettings | None") -> int:
    from ...store.inspect.rebuild import rebuild

    with bytes_bar("rebuilding") as progress:
        made = rebuild(options.folder, settings, progress)
    if options.json:
        print(json.dumps(asdict(made)))
    else:
        print(
            f"made {made.queues:,} queues with {made.entries:,} entries and an index of "
            f"{made.keys:,} keys from the log"
        )
    return 0


def _settings(options: argparse.Namespace) -> "StoreSettings | None":
    """The given settings, or None."""
    if options.file is None and not options.settings:
        return None
    from ...broker.settings.config import load_broker

    given = [*options.settings, f"storePathRootDir={options.folder}"]
    config, warnings = load_broker(file=options.file, options=given)
    for warning in warnings:
        print(f"aerobee store: {warning}", file=sys.stderr)
    return config.store_settings()


def _text(line: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in _shown(line.items()))


def _shown(pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in pairs:
        if value not in (None, "", [], {}):
            yield name, json_line(value) if name == "body" else value
