"""lake.yaml: the cluster, the catalog, and which topics become tables.

`aerobee lake add` writes it, and it can be written by hand. `aerobee lake run` follows its entries.
"""

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from ..protocol.names import GROUP_CHARS_MAX
from .bodies.fields import Field, parse
from .errors import LakeError

DEFAULT_FILE = "lake.yaml"
TABLES_MAX = 10_000


class TableSettings(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """One topic with its table, or a pattern: a regular expression for whole names of topics.

    `table` is its name, made of the topic's by default. A commit is made each `commit_seconds`, or
    when `commit_mib` (of rows in memory) have come. `start` is where the queues begin that exist at
    the first commit: earliest, latest, or ms since the epoch. `json` declares columns of JSON
    bodies, as a DDL.
    """

    topic: str = ""
    pattern: str = ""
    table: str = ""
    commit_seconds: Annotated[float, Meta(ge=0.1, le=3_600)] = 10.0
    commit_mib: Annotated[int, Meta(ge=1, le=1_024)] = 64
    start: Literal["earliest", "latest"] | Annotated[int, Meta(ge=0)] = "earliest"
    on_gone: Literal["stop", "skip"] = "stop"
    json: str = ""

    def __post_init__(self) -> None:
        if self.json:
            try:
                parse(self.json)
            except LakeError as wrong:
                raise ValueError(str(wrong)) from None
        if bool(self.topic) == bool(self.pattern):
            raise ValueError("a table needs either topic or pattern")
        if self.pattern and self.table:
            raise ValueError(f"table is {self.table!r}, but a pattern has a table for each topic")
        if self.pattern:
            try:
                re.compile(self.pattern)
            except re.error as wrong:
                raise ValueError(
                    f"pattern {self.pattern!r} is no regular expression: {wrong}"
                ) from None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The declared columns."""
        return parse(self.json) if self.json else ()


class LakeSettings(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """All settings of a lake.

    `place` is where new tables lie: a folder, or a URI like s3://bucket/folder. `catalog` has
    pyiceberg's properties of a catalog; without any, those of `catalog_name` in pyiceberg's own
    configuration. `stores` are store folders on this machine, by the name of their broker: its
    messages are read from the files. `workers` tables are written at the same time. The
    offsets that tables have are those of consumer `group` at the brokers, too, if it is named. Each
    `upkeep_hours` (0: never) a running lake compacts its tables to files of `compact_mib` (of rows
    in memory), drops snapshots that are older than `snapshot_days`, and sweeps.
    """

    place: str
    namesrv_addr: str = ""
    catalog: dict[str, str] = {}
    catalog_name: str = "aerobee"
    namespace: str = "rocketmq"
    stores: dict[str, str] = {}
    workers: Annotated[int, Meta(ge=1, le=64)] = 2
    group: str = ""
    http_port: Annotated[int, Meta(ge=-1, le=65_535)] = -1
    http_bind_address: str = "127.0.0.1"
    http_token: str = ""
    console_url: str = ""
    upkeep_hours: Annotated[float, Meta(ge=0, le=8_760)] = 24.0
    compact_mib: Annotated[int, Meta(ge=1, le=4_096)] = 256
    snapshot_days: Annotated[float, Meta(gt=0, le=3_650)] = 7.0
    tables: Annotated[tuple[TableSettings, ...], Meta(max_length=TABLES_MAX)] = ()

    def __post_init__(self) -> None:
        for part in self.namespace.split("."):
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", part):
                raise ValueError(
                    f"namespace is {self.namespace!r}; give names of A-Z a-z 0-9 _ - with dots "
                    "between"
                )
        if not re.fullmatch(rf"[%|a-zA-Z0-9_-]{{0,{GROUP_CHARS_MAX}}}", self.group):
            raise ValueError(
                f"group is {self.group!r}; give up to {GROUP_CHARS_MAX} characters of A-Z a-z 0-9 "
                "_ - % |"
            )
        for kind in ("topic", "pattern"):
            named = [getattr(each, kind) for each in self.tables if getattr(each, kind)]
            twice = next((each for each, count in Counter(named).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{kind} {twice} is there twice; leave one entry")

    def entry_of(self, topic: str) -> TableSettings | None:
        """The entry that a topic's table follows: its own, else the first pattern that fits."""
        return self.entries([topic]).get(topic)

    def entries(self, topics: Iterable[str]) -> dict[str, TableSettings]:
        """The entries of those topics that have one."""
        own = {each.topic: each for each in self.tables if each.topic}
        patterns = [(re.compile(each.pattern), each) for each in self.tables if each.pattern]
        found: dict[str, TableSettings] = {}
        for topic in topics:
            fits = (each for pattern, each in patterns if pattern.fullmatch(topic))
            entry = own.get(topic) or next(fits, None)
            if entry is not None:
                found[topic] = entry
        return found


def read(path: Path) -> LakeSettings:
    """The settings in a file. LakeError when it can't be read, or says something wrong."""
    try:
        said = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise LakeError(
            f"there is no file {path}; make it with aerobee lake add TOPIC --to PLACE, or name "
            "another with --config"
        ) from None
    except (OSError, ValueError, yaml.YAMLError) as wrong:
        raise LakeError(f"{path} can't be read: {_line(wrong)}") from None
    if said is None:
        raise LakeError(f"{path} is empty; give at least place; docs/lake.md has all settings")
    try:
        return msgspec.convert(said, LakeSettings)
    except (msgspec.ValidationError, ValueError) as wrong:
        raise LakeError(
            f"{path}: {wrong}{_nearest(str(wrong))}; docs/lake.md has all settings"
        ) from None


def _line(wrong: Exception) -> str:
    """What is wrong, on one line; of YAML with the place."""
    if not isinstance(wrong, yaml.MarkedYAMLError) or wrong.problem_mark is None:
        return " ".join(str(wrong).split())
    mark = wrong.problem_mark
    found = " ".join(filter(None, (wrong.context, wrong.problem)))
    return f"line {mark.line + 1}, column {mark.column + 1}: {found}"


def _nearest(text: str) -> str:
    """A hint at the known key that is nearest to the unknown one in a text of msgspec."""
    unknown = re.search(r"unknown field `(.*?)`", text)
    if unknown is None:
        return ""
    kind = TableSettings if "$.tables" in text else LakeSettings
    known = msgspec.structs.fields(kind)
    near = difflib.get_close_matches(unknown[1], [each.encode_name for each in known], 1)
    return f" (is {near[0]} meant?)" if near else ""


class SettingsFile:
    """A file of settings that a running lake follows. `namesrv_addr` counts instead of the file's,
    where it is given."""

    def __init__(self, path: Path, namesrv_addr: str = "") -> None:
        self.path = path
        self._namesrv_addr = namesrv_addr
        self._stamp: tuple[int, ...] = ()  # as it was read
        self._seen: tuple[int, ...] = ()  # at the last call of `changed`

    def read(self) -> LakeSettings:
        """The settings. LakeError as by `read`."""
        self._stamp = self._stamp_now()
        found = read(self.path)
        if self._namesrv_addr:
            found = msgspec.structs.replace(found, namesrv_addr=self._namesrv_addr)
        return found

    def changed(self) -> LakeSettings | None:
        """The settings if the file has changed since it was read and not since the last call (an
        editor may be writing it), else None. LakeError as by `read`, once for each change."""
        before, self._seen = self._seen, self._stamp_now()
        return self.read() if self._stamp != self._seen == before else None

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size


def write(path: Path, settings: LakeSettings) -> None:
    """Replace the file at once. It is for its owner alone: a catalog's token may be in it."""
    text = yaml.safe_dump(msgspec.to_builtins(settings), sort_keys=False, allow_unicode=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as wrong:
        raise LakeError(f"{path} can't be written: {wrong}") from None


def catalog_of(text: str) -> dict[str, str]:
    """pyiceberg's properties of the catalog at an address. LakeError for an unknown kind."""
    kinds = {
        "sqlite": "sql",
        "postgresql": "sql",
        "http": "rest",
        "https": "rest",
        "thrift": "hive",
    }
    if text == "glue":
        return {"type": "glue"}
    scheme = text.partition(":")[0].partition("+")[0]
    if scheme not in kinds or "://" not in text:
        raise LakeError(
            f"the catalog is {text!r}; give sqlite:///PATH, postgresql+psycopg2://..., "
            "http(s)://... (REST), thrift://... (Hive), or glue"
        )
    return {"type": kinds[scheme], "uri": text}
