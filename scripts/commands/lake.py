"""`aerobee lake`: topics as Iceberg tables, every message a row, once.

`add` writes an entry of lake.yaml and makes the table, `run` is the process that copies.
"""

import argparse
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ...client.base.start_from import FIRST, LAST
from ...client.base.words import counted
from ...protocol.names import is_system_topic
from .. import logs, serving
from ..begin_at import TIMES, start_of
from ..connecting import add_options, security
from ..named import named
from ..output.command_error import CommandError
from ..output.sanitize import json_line, sanitize
from ..output.table import Columns, latest, print_rows
from ..serving import Stack

if TYPE_CHECKING:
    from ...lake.catalog import LakeCatalog
    from ...lake.settings import LakeSettings, TableSettings
    from ...lake.status import TableStatus
    from ...lake.topic_log import TopicLog
    from ...lake.upkeep import Upkeep

log = logging.getLogger(__name__)

ACTIONS = ("status", "add", "run", "verify", "retry", "compact", "expire", "sweep", "remove")
RETRY_FILES = 100  # of dead letters in a commit
REASONS_SHOWN = 5
INFER = "infer"
STATUS: Columns = (
    "TOPIC",
    "TABLE",
    "ROWS",
    "BYTES",
    "FILES",
    "MESSAGES BEHIND",
    "BYTES BEHIND",
    "SECONDS BEHIND",
    "DEAD LETTERS",
    "GONE",
    "LAST COMMIT",
)
VERIFY: Columns = (
    "QUEUE",
    "FROM",
    "TO",
    "ROWS",
    "COMPARED",
    "MISSING",
    "TWICE",
    "DIFFERENT",
    "BEYOND",
    "GONE",
    "OFFSETS",
)
MISSING = "the lake needs pyiceberg, which is not installed; run pip install 'aerobee[lake]'"
DEFAULT_FILE = "lake.yaml"

Result = TypeVar("Result")


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = (
        "add makes a topic's table and writes it into the settings; run copies all tables of the "
        "settings; status shows how far each is; verify compares a table with the log, row by row; "
        "retry reads dead letters again; compact makes few files of those of closed days, expire "
        "drops old snapshots, and sweep deletes files that no snapshot has and an earlier sweep "
        "noted: run does these three each day; remove ends the copying and leaves the table."
    )
    add = parser.add_argument
    add("action", nargs="?", choices=ACTIONS, default="status")
    add("name", nargs="?", metavar="TOPIC", help="for add, verify, retry, remove; others take all")
    add(
        "--config",
        type=Path,
        default=Path(DEFAULT_FILE),
        metavar="FILE",
        help=f"settings ({DEFAULT_FILE})",
    )
    add("--to", metavar="PLACE", help="add: where tables lie, a folder or s3://bucket/folder")
    add(
        "--catalog",
        metavar="URL",
        help="add: sqlite:///PATH, http(s)://... (REST), thrift://... (Hive) or glue; a file in "
        "the folder of the tables without it",
    )
    add(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="add: pyiceberg's, of the catalog: s3.endpoint=..., token=...",
    )
    add("--namespace", metavar="NAME", help="add: of the tables in the catalog (rocketmq)")
    add(
        "--group",
        metavar="NAME",
        help="add: a consumer group whose offsets are those of the tables; retainUntilConsumedBy "
        "of the brokers can name it",
    )
    add("--pattern", action="store_true", help="add, remove: TOPIC is a regular expression")
    add("--table", metavar="NAME", help="add: the table's name (the topic's)")
    add("--commit-seconds", type=float, metavar="S", help="add: between two commits (10)")
    add("--commit-mib", type=int, metavar="N", help="add: of rows in a commit at most (64)")
    add(
        "--from",
        dest="start",
        metavar="WHERE",
        help=f"add: where queues begin: earliest (the default), latest, {TIMES}; verify: compare "
        "from there on, without it from the table's oldest row on",
    )
    add("--on-gone", choices=("stop", "skip"), help="add: when messages are gone unread (stop)")
    add(
        "--fields",
        metavar="DDL",
        help="add: columns of JSON bodies, as in 'id bigint, seen timestamp', or infer: those of "
        "the newest messages; '' for none any more",
    )
    add("--store", action="append", default=[], metavar="BROKER=DIR", help="add: read its files")
    add("--keep", type=int, metavar="N", help="expire: snapshots that stay, at most 100 (100)")
    add(
        "--older",
        metavar="AGE",
        help="expire: snapshots, too, that are older (7d); sweep: files noted that long ago (1d)",
    )
    add("--dry-run", action="store_true", help="sweep: say what would be deleted, and note nothing")
    add("--once", action="store_true", help="run: end when all that is there now is copied")
    add("--json", action="store_true", help="one object a line instead of a table")
    add_options(parser)
    parser.set_defaults(run=lake)


def lake(options: argparse.Namespace) -> int:
    """One of the actions; 1 when verify finds a difference, or a table fails."""
    if find_spec("pyiceberg") is None:
        raise CommandError(MISSING)
    with _readable():
        work: dict[str, Callable[[argparse.Namespace], int]] = {
            "add": _add,
            "run": _run_once if options.once else _run,
            "status": _status,
            "verify": _verify,
            "retry": _retry,
            "compact": _kept_up(_compacted),
            "expire": _kept_up(_expired),
            "sweep": _kept_up(_swept),
            "remove": _remove,
        }
        return work[options.action](options)


@contextmanager
def _readable() -> Iterator[None]:
    from ...lake.errors import LakeError

    try:
        yield
    except LakeError as wrong:
        raise CommandError(str(wrong)) from wrong


def _settings(options: argparse.Namespace) -> "LakeSettings":
    from ...lake import settings

    found = settings.read(options.config)
    if options.namesrv:
        found = msgspec.structs.replace(found, namesrv_addr=options.namesrv)
    return found


def _is(entry: "TableSettings", options: argparse.Namespace) -> bool:
    """True if this is the entry that the options name."""
    name: str = options.name
    return name == (entry.pattern if options.pattern else entry.topic)


@contextmanager
def _opened(
    found: "LakeSettings", options: argparse.Namespace
) -> "Iterator[tuple[LakeCatalog, TopicLog]]":
    """The catalog and the topics that settings name."""
    from ...lake import opening

    catalog = opening.open_catalog(found, must_exist=True)
    source = opening.open_log(found, security(options))
    try:
        yield catalog, source
    finally:
        source.close()


# --- add and remove ---------------------------------------------------------------------------


def _add(options: argparse.Namespace) -> int:
    from ...lake import catalog, opening, settings
    from ...lake.bodies.fields import ddl
    from ...lake.bodies.infer import infer

    name = named(options, "topic")
    if options.fields == INFER and options.pattern:
        raise CommandError("--fields infer is for one topic; declare the columns of a pattern")
    found = _changed(options)
    before = [each for each in found.tables if _is(each, options)]
    others = [each for each in found.tables if not _is(each, options)]
    entry = _entry(options, before)

    def changed() -> "LakeSettings":
        return msgspec.structs.replace(found, tables=(*others, entry))

    with _opened(found, options) as (opened, source):
        if entry.pattern:
            opening.check_dead_letters(changed(), source, entry)
            fitting = [topic for topic in source.topics() if re.fullmatch(name, topic)]
            said = f"topics that fit {name!r} ({len(fitting)} now) go to tables of their names"
        else:
            if is_system_topic(name):
                raise CommandError(
                    f"{name} is a topic of the system, whose messages are taken back or moved; "
                    "give one of an application"
                )
            source.bounds(name)
            if options.fields == INFER:
                seen = infer(source, name)
                text = ddl(seen.fields)
                for line in (f"columns of the newest messages: {text}", *seen.told()):
                    print(sanitize(line))
                entry = msgspec.structs.replace(entry, json=text)
            opening.check_dead_letters(changed(), source, entry)
            table = opened.create(entry.table or catalog.table_name(name), name)
            catalog.missing_columns(table, ".".join(table.name()), entry.fields)
            said = f"topic {name} goes to table {'.'.join(table.name())} at {table.location()}"
    settings.write(options.config, changed())
    if options.fields != INFER and (entry.json or options.fields is not None):
        print(sanitize(_columns_said(entry, before)))
    config = "" if options.config == Path(DEFAULT_FILE) else f" --config {options.config}"
    print(sanitize(f"{said}; copy with: aerobee lake run{config} (one that runs takes it over)"))
    return 0


def _columns_said(entry: "TableSettings", before: "list[TableSettings]") -> str:
    """What the columns of JSON are now."""
    from ...lake.bodies.fields import ddl

    if entry.json:
        return f"columns of JSON: {ddl(entry.fields)}"
    gone = "".join(ddl(each.fields) for each in before)
    if not gone:
        return "no columns of JSON"
    return f"no columns of JSON any more: {gone} stay in the table, without values in new rows"


def _changed(options: argparse.Namespace) -> "LakeSettings":
    """The settings of the file, or new ones, with what the options say about the whole lake."""
    from ...lake import settings
    from ...lake.settings import LakeSettings

    properties = dict(_pair(text, "--property") for text in options.property)
    place = None if options.to is None else _place(options.to)
    if options.config.exists():
        found = settings.read(options.config)
        if place not in (None, _place(found.place)):
            raise CommandError(
                f"{options.config} has the place {found.place}, --to is {options.to}; leave it "
                "out, or name another file with --config"
            )
        if found.tables and options.namespace not in (None, found.namespace):
            raise CommandError(
                f"{options.config} has the namespace {found.namespace}, --namespace is "
                f"{options.namespace}; leave it out, or name another file with --config"
            )
        given = settings.catalog_of(options.catalog) if options.catalog else {}
        uri = found.catalog.get("uri")
        if found.tables and given and given.get("uri") != uri:
            raise CommandError(
                f"{options.config} has the catalog {uri or 'of another kind'}, --catalog is "
                f"{options.catalog}; leave it out, or name another file with --config"
            )
        found = msgspec.structs.replace(found, catalog=found.catalog | given | properties)
    else:
        if place is None:
            raise CommandError(
                f"there is no {options.config} yet; say where tables lie: --to FOLDER, or --to "
                "s3://bucket/folder"
            )
        url = options.catalog or _default_catalog(place, options.config)
        found = LakeSettings(
            place=place,
            catalog=settings.catalog_of(url) | properties,
            namesrv_addr=options.namesrv or "",
        )
    stores = dict(_pair(text, "--store") for text in options.store)
    more = {} if options.namespace is None else {"namespace": options.namespace}
    if options.namesrv:
        more["namesrv_addr"] = options.namesrv
    if options.group is not None:
        more["group"] = options.group
    try:
        return msgspec.structs.replace(found, stores=found.stores | stores, **more)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from wrong


def _place(text: str) -> str:
    """A place as the settings have it: a URI, or a whole path. CommandError for none."""
    if not text.strip():
        raise CommandError("--to is empty; give a folder, or s3://bucket/folder")
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())


def _default_catalog(place: str, config: Path) -> str:
    """A file of SQLite: in the folder of the tables, or beside the settings."""
    if "://" in place:
        return f"sqlite:///{config.absolute().with_suffix('.db')}"
    Path(place).mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{Path(place) / 'catalog.db'}"


def _entry(options: argparse.Namespace, before: "list[TableSettings]") -> "TableSettings":
    """The entry as the options say, else as it was."""
    from ...lake.settings import TableSettings

    said = {
        "pattern" if options.pattern else "topic": options.name,
        "table": options.table,
        "commitSeconds": options.commit_seconds,
        "commitMib": options.commit_mib,
        "onGone": options.on_gone,
        "json": options.fields if options.fields != INFER else None,
        "start": None if options.start is None else _start(options.start),
    }
    given = {key: value for key, value in said.items() if value is not None}
    for each in before:
        given = msgspec.to_builtins(each) | given
    try:
        return msgspec.convert(given, TableSettings)
    except ValueError as wrong:
        raise CommandError(f"{wrong}; see aerobee lake --help") from wrong


def _start(text: str) -> str | int:
    found = start_of(text, latest=True)
    return {FIRST: "earliest", LAST: "latest"}.get(found.where, found.ms)


def _pair(text: str, option: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign and value):
        raise CommandError(f"{option} is {text!r}; write KEY=VALUE")
    return key, value


def _remove(options: argparse.Namespace) -> int:
    from ...lake import settings

    name = named(options, "topic")
    found = settings.read(options.config)
    rest = tuple(each for each in found.tables if not _is(each, options))
    if rest == found.tables:
        entries = (each.topic or f"{each.pattern} (--pattern)" for each in rest)
        known = ", ".join(entries) or "none"
        raise CommandError(f"{options.config} has no entry {name}; it has {known}")
    left = msgspec.structs.replace(found, tables=rest)
    settings.write(options.config, left)
    fits = None if options.pattern else left.entry_of(name)
    said = (
        "its table stays; a lake that runs ends the copying"
        if fits is None
        else f"its pattern {fits.pattern} goes on"
    )
    print(sanitize(f"the entry {name} is gone, {said}"))
    if left.group and fits is None:
        print(
            sanitize(
                f"the offsets of group {left.group} stay at the brokers; brokers whose "
                "retainUntilConsumedBy names it hold the log there until that no longer names it, "
                f"or until aerobee groups delete {left.group}, after which a lake that runs "
                "commits those of its other tables again at its next start"
            )
        )
    return 0


# --- run --------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    from ...lake import overview
    from ...lake.service import Lake
    from ...lake.settings import SettingsFile
    from ...protocol.aio.slices import step_per_tick
    from ..endpoints import endpoint_of

    options.log_default = ("info", logs.FULL)
    logs.start(options)
    file = SettingsFile(options.config, options.namesrv or "")
    settings = file.read()
    own = security(options)
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)  # it tells of each file

    async def parts(stack: Stack) -> str:
        logs.debug_at_signal()
        running = Lake(settings, security=own, file=file)
        with _readable():
            await stack.start(running)
        endpoint = endpoint_of(running, overview, settings, step_per_tick, listen_port=0)
        await stack.start(endpoint)
        page = f", HTTP {endpoint.url}" if endpoint.url else ""
        return (
            f"the lake is ready: {counted(len(settings.tables), 'entry', 'entries')} of "
            f"{options.config}, tables at {settings.place}{page}"
        )

    return serving.run(parts)


def _run_once(options: argparse.Namespace) -> int:
    from ...client.errors import AerobeeError
    from ...lake import opening, service
    from ...lake.commits import Conflict
    from ...lake.errors import LakeError

    settings = _settings(options)
    failed = 0
    with _opened(settings, options) as (opened, source):
        for topic, entry in opening.topics_of(settings, source):
            copier = service.materializer(opened, source, topic, entry, settings.group)
            rows, dead, more, why = 0, 0, True, ""
            try:
                if entry.pattern:
                    opened.create(copier.name, topic)
                while more:
                    try:
                        done = copier.copy()
                    except Conflict as wrong:
                        log.info("%s", wrong)
                        continue
                    rows += done.rows - done.dead
                    dead += done.dead
                    more = done.is_behind
                    if done.failures:
                        raise LakeError(done.failures[0])
                if done.group_failures:
                    raise LakeError(done.group_failures[0])
            except (LakeError, AerobeeError, OSError) as wrong:
                failed += 1
                why = f", then: {service.reason(wrong, settings.place)}"
            letters = f", {counted(dead, 'dead letter', 'dead letters')}" if dead else ""
            print(sanitize(f"{topic}: {rows:,} rows{letters}{why}"))
    return 1 if failed else 0


def _retry(options: argparse.Namespace) -> int:
    from ...lake import service
    from ...lake.commits import Conflict

    name = named(options, "topic")
    settings = _settings(options)
    entry = settings.entry_of(name)
    if entry is None:
        raise CommandError(f"{options.config} has no entry for topic {name}")
    fit, stay, skip = 0, Counter[str](), set[str]()
    with _opened(settings, options) as (opened, source):
        copier = service.materializer(opened, source, name, entry)
        while True:
            try:
                done = copier.retry(RETRY_FILES, skip)
            except Conflict as wrong:
                log.info("%s", wrong)
                continue
            if done is None:
                break
            fit += done.fit
            stay += done.stay
            skip.update(done.read, done.written)
    print(f"{fit:,} dead letters fit now and are rows, {stay.total():,} stay")
    for reason, count in stay.most_common(REASONS_SHOWN):
        print(sanitize(f"{count:,}: {reason}"))
    return 0


# --- status and verify ------------------------------------------------------------------------


def _status(options: argparse.Namespace) -> int:
    from ...lake import opening
    from ...lake.progress import NO_TOTALS
    from ...lake.status import status

    settings = _settings(options)
    with _opened(settings, options) as (opened, source):
        found = [
            status(opened, source, topic, entry)
            for topic, entry in opening.topics_of(settings, source)
            if options.name in (None, topic)
        ]
        if options.name and not found:
            raise CommandError(f"{options.config} has no entry for topic {options.name}")
    if options.json:
        for each in found:
            row = asdict(each)
            print(json_line((row.pop("totals") or dict.fromkeys(asdict(NO_TOTALS))) | row))
    else:
        rows = [_status_row(each) for each in found]
        print_rows(STATUS, rows, as_json=False)
        for each in found:
            if each.failure:
                print(sanitize(f"{each.topic}: {each.failure}"))
    return 1 if any(each.failure for each in found) else 0


def _status_row(each: "TableStatus") -> tuple[str | int, ...]:
    """The cells of STATUS; - for what is not known."""
    totals = each.totals
    lag_s = None if each.lag_s is None else round(each.lag_s)
    numbers = (each.lag_messages, each.lag_bytes, lag_s)
    lag = ["-" if one is None else one for one in numbers]
    if totals is None:
        return (each.topic, each.table, "-", "-", "-", *lag, "-", "-", "-")
    before, behind = (totals.rows, totals.bytes, totals.files), (totals.dead_letters, totals.gone)
    return (each.topic, each.table, *before, *lag, *behind, latest([totals.committed_ms]))


def _verify(options: argparse.Namespace) -> int:
    from ...lake import opening
    from ...lake.dead_letters import DeadLetters
    from ...lake.verify import verify

    name = named(options, "topic")
    settings = _settings(options)
    entry = settings.entry_of(name)
    if entry is None:
        raise CommandError(f"{options.config} has no entry for topic {name}")
    since = None
    if options.start is not None:
        since = start_of(options.start, latest=False).ms
    with _opened(settings, options) as (opened, source):
        table = opened.load(opening.name_of(name, entry), name)
        letters = DeadLetters(opened, name, opening.name_of(name, entry))
        found = list(
            verify(table, source, name, since_ms=since, fields=entry.fields, letters=letters)
        )
    rows = [
        (
            each.queue,
            *(each.first, each.end, each.rows, each.compared),
            *(each.missing, each.twice, each.different, each.beyond, each.gone),
            ", ".join(map(str, each.first_bad)) or "-",
        )
        for each in found
    ]
    print_rows(VERIFY, rows, as_json=options.json)
    bad = [each.queue for each in found if not each.is_clean]
    if options.json:
        return 1 if bad else 0
    if bad:
        print(
            sanitize(
                f"the table and the log differ in {', '.join(bad)}; OFFSETS has the first ones"
            )
        )
        return 1
    print(f"the table and the log are the same: {sum(each.rows for each in found):,} rows")
    return 0


# --- upkeep -----------------------------------------------------------------------------------


def _kept_up(
    work: "Callable[[Upkeep, LakeSettings, argparse.Namespace], str]",
) -> Callable[[argparse.Namespace], int]:
    """An action that does `work` for one table or all, and tells what it says of each."""

    def act(options: argparse.Namespace) -> int:
        from ...lake import opening
        from ...lake.errors import LakeError
        from ...lake.upkeep import Upkeep

        settings = _settings(options)
        failed = 0
        with _opened(settings, options) as (catalog, source):
            pairs = [
                (topic, entry)
                for topic, entry in opening.topics_of(settings, source)
                if options.name in (None, topic)
            ]
            if options.name and not pairs:
                raise CommandError(f"{options.config} has no entry for topic {options.name}")
            for topic, entry in pairs:
                upkeep = Upkeep(catalog, topic, opening.name_of(topic, entry))
                try:
                    said = work(upkeep, settings, options)
                except (LakeError, OSError) as wrong:
                    failed += 1
                    said = str(wrong)
                for line in f"{topic}: {said}".splitlines():
                    print(sanitize(line))
        return 1 if failed else 0

    return act


def _compacted(upkeep: "Upkeep", settings: "LakeSettings", options: argparse.Namespace) -> str:
    done = upkeep.compact(settings.compact_mib << 20)
    if done.days:
        days = counted(done.days, "day", "days")
        return f"{done.before:,} files of {days} are {done.after:,} now, {done.rows:,} rows"
    merged = f"; {done.manifests} manifests are merged" if done.manifests else ""
    return f"no closed day has files to compact{merged}"


def _expired(upkeep: "Upkeep", settings: "LakeSettings", options: argparse.Namespace) -> str:
    from ...lake.commits import SNAPSHOTS_MAX

    keep = SNAPSHOTS_MAX if options.keep is None else options.keep
    if not 1 <= keep <= SNAPSHOTS_MAX:
        raise CommandError(f"--keep is {keep}; give 1 to {SNAPSHOTS_MAX}, what a table keeps")
    older_ms = _age_ms(options.older, round(settings.snapshot_days * 86_400_000))
    return f"{counted(upkeep.expire(keep, older_ms), 'snapshot', 'snapshots')} dropped"


def _swept(upkeep: "Upkeep", _: "LakeSettings", options: argparse.Namespace) -> str:
    from ...lake.sweep import OLDER_MS_MIN

    done = upkeep.sweep(_age_ms(options.older, OLDER_MS_MIN), is_dry=options.dry_run)
    files = f"{counted(len(done.deleted), 'file', 'files')} ({done.bytes:,} bytes)"
    later = f"; {done.noted:,} are noted, for later sweeps" if done.noted else ""
    if options.dry_run:
        later = f"; {done.noted:,} are too young, or not noted for long enough"
        return "\n  ".join([f"{files} would be deleted{later}", *done.deleted])
    return f"{files} deleted{later}"


def _age_ms(text: str | None, default: int) -> int:
    if text is None:
        return default
    span = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if span is None:
        raise CommandError(f"--older is {text!r}; write an age like 12h or 7d")
    return int(span[1]) * {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[span[2]]
