"""The options of a read, named as in Spark's Kafka source.

All are checked in the driver before any task starts; an unknown or invalid option raises
`ValueError` with the option, its value and the accepted values. The option names of the older
connector for RocketMQ (`ALIASES`) are accepted as well.
"""

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..client.base.security import Security
from ..protocol.errors import Refusal
from ..protocol.names import SPARK_GROUP, check_group, check_topic
from .security_options import SECURITY_OPTIONS, flag, security_of

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
FORMATS = ("parquet", "json", "csv", "delta")  # of the tables that `aerobee ingest` writes
MALFORMED = ".malformed"  # behind the name of the table whose rows don't fit the schema
MESSAGES_PER_PULL_MAX = 1024
PARTITIONS_MAX = 100_000  # of one read
TOPICS_MAX = 1_000  # of one read
ROWS_MAX = 1 << 50  # of one micro-batch
BYTES_MAX = 1 << 60  # of one micro-batch
DEDUP_OFFSETS = 100_000  # distance in a queue within which a repeat is found
RETRIES = 3  # fetchOffset.numRetries of Spark's Kafka source
RETRY_MS = 10  # fetchOffset.retryIntervalMs
TRIGGER_DELAY = "15m"  # maxTriggerDelay of Spark's Kafka source

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1  # as Kafka's source numbers them in JSON

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "nameServer",
    "group",
    "subExpression",
    "filterSql",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "maxMessagesPerPull",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "includeHeaders",
    "rowSchema",
    "failOnDataLoss",
    "commitOffsets",
    "dedup",
    "dedupWindow",
    "storePath",
    "lakeConfig",
    *SECURITY_OPTIONS,
)
# Option names of rocketmq-spark, and the names here.
ALIASES = {
    "topic": "subscribe",
    "nameserver.addr": "nameServer",
    "consumer.group": "group",
    "consumer.topic": "subscribe",
    "pull.max.batch.size": "maxMessagesPerPull",
    "consumer.tag": "subExpression",
}
_TIMES_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Offsets = dict[str, dict[str, int]]
Queues = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Place:
    """The start or the end of a read: `offsets` (a word or one per queue), or by time.

    `times` is ms since the epoch, for all queues or one per queue; it counts where it is given.
    """

    offsets: str | Offsets
    times: int | Offsets | None = None

    @property
    def moves(self) -> bool:
        """True if the place depends on the present end of at least one queue."""
        if self.times is not None or isinstance(self.offsets, str):
            return self.times is None and self.offsets == LATEST
        return any(LATEST_OFFSET in each.values() for each in self.offsets.values())


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, checked. `starting` and `ending` hold for each topic (see `plan.offset_of`).

    Rows that the sink has written twice, at most `dedup_window` offsets apart, are dropped; 0 drops
    none. With `store_path` the rows come from a broker's files; with `lake_config`, the settings of
    a lake, a stream begins in the topics' tables. Just one of `topics`, `pattern` and `queues` says
    what is read. `rows_max`, `bytes_max` and `rows_min` are of a micro-batch, which waits for the
    last one `wait_ms` at most.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Queues | None = None
    name_server: str = DEFAULT_NAME_SERVER
    group: str = SPARK_GROUP
    tags: str | None = None
    sql: str | None = None
    starting: Place = Place(EARLIEST)
    ending: Place = Place(LATEST)
    messages_per_pull: int | None = None  # None: as many as the broker gives
    partitions_min: int = 0
    partition_rows_max: int | None = None
    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    wait_ms: int = 15 * 60_000
    retries: int = RETRIES
    retry_ms: int = RETRY_MS
    headers: bool = False
    full: bool = False
    fail_on_data_loss: bool = True
    commit_offsets: bool = True
    dedup_window: int = 0
    store_path: str | None = None
    lake_config: str | None = None
    security: Security = field(default_factory=Security)

    @property
    def reader(self) -> dict[str, Any]:
        """The arguments of the client's readers."""
        found: dict[str, Any] = {"group": self.group, "security": self.security}
        if self.sql is not None:
            found |= {"expression": self.sql, "is_sql": True}
        elif self.tags is not None:
            found["expression"] = self.tags
        return found

    @property
    def is_filtered(self) -> bool:
        """Some messages are left out, so offsets have holes."""
        return self.sql is not None or self.tags is not None


def read_options(given: Mapping[str, str], *, stream: bool | None = False) -> ReadOptions:
    """The options of a batch read or a stream (None: not known yet), in any case of letters."""
    said = known_options(given, OPTIONS, ALIASES)
    if stream is not None:
        _check_kind(said, stream)
    if said.get("rowSchema", "kafka").lower() not in ("kafka", "full"):
        raise ValueError(f"option rowSchema is {said['rowSchema']!r}; give kafka or full")
    group = said.get("group") or SPARK_GROUP
    _legal("group", group)
    topics, pattern, queues = _what(said)
    if "subExpression" in said and "filterSql" in said:
        raise ValueError("options subExpression and filterSql were both given; give one of them")
    return ReadOptions(
        topics=topics,
        pattern=pattern,
        queues=queues,
        name_server=name_server_of(said),
        group=group,
        tags=None if said.get("subExpression", "*") in ("", "*") else said["subExpression"],
        sql=said.get("filterSql") or None,
        starting=_place(said, "starting", LATEST if stream else EARLIEST),
        ending=_place(said, "ending", LATEST),
        messages_per_pull=_number(said, "maxMessagesPerPull", 0, 1, MESSAGES_PER_PULL_MAX) or None,
        partitions_min=_number(said, "minPartitions", 0, 1, PARTITIONS_MAX),
        partition_rows_max=_number(said, "maxRecordsPerPartition", 0, 1, ROWS_MAX) or None,
        rows_max=_number(said, "maxOffsetsPerTrigger", 0, 1, ROWS_MAX) or None,
        bytes_max=_bytes(said, "maxBytesPerTrigger"),
        rows_min=_number(said, "minOffsetsPerTrigger", 0, 1, ROWS_MAX) or None,
        wait_ms=_time_ms(said, "maxTriggerDelay", TRIGGER_DELAY),
        retries=_number(said, "fetchOffset.numRetries", RETRIES, 0, 1_000),
        retry_ms=_number(said, "fetchOffset.retryIntervalMs", RETRY_MS, 0, 600_000),
        headers=flag(said, "includeHeaders", default=False),
        full=said.get("rowSchema", "").lower() == "full",
        fail_on_data_loss=flag(said, "failOnDataLoss", default=True),
        commit_offsets=flag(said, "commitOffsets", default=True),
        dedup_window=_number(said, "dedupWindow", DEDUP_OFFSETS, 1, ROWS_MAX)
        if flag(said, "dedup", default=False)
        else 0,
        store_path=_store_path(said),
        lake_config=_lake_config(said, stream),
        security=security_of(said),
    )


def with_lake(options: ReadOptions, given: Mapping[str, str]) -> ReadOptions:
    """The options with the name servers of the lake, unless others were given. LakeError when its
    settings can't be read."""
    if options.lake_config is None or known_options(given, OPTIONS, ALIASES).get("nameServer"):
        return options
    from ..lake import settings

    found = settings.read(Path(options.lake_config)).namesrv_addr
    return replace(options, name_server=found) if found else options


def _check_kind(said: Mapping[str, str], stream: bool) -> None:
    """Raise ValueError for a stream with an end, and for a batch from latest or to earliest."""
    if stream:
        for option in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if option in said:
                raise ValueError(f"option {option} is for batch reads; a stream has no end")
        return
    for option, text in (("startingOffsets", LATEST), ("endingOffsets", EARLIEST)):
        if said.get(option, "").lower() == text:
            other = EARLIEST if text == LATEST else LATEST
            raise ValueError(
                f"option {option} can't be {text} in a batch read; give {other} or JSON"
            )


def name_server_of(said: Mapping[str, str]) -> str:
    """The name server, from the options or the driver's environment; executors may have another."""
    return said.get("nameServer") or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER


def queue_names(broker_name: str, queue_id: int) -> tuple[str, str]:
    """The names of a queue in JSON offsets: "broker-a:0", or "0" on every broker."""
    return f"{broker_name}:{queue_id}", str(queue_id)


def known_options(
    given: Mapping[str, str], options: Sequence[str], aliases: Mapping[str, str]
) -> dict[str, str]:
    """The values by option; ValueError for an unknown one, and for one that is given twice."""
    known = {name.lower(): name for name in options} | dict(aliases)
    said: dict[str, str] = {}
    for name, value in given.items():
        option = known.get(name.lower())
        if option is None:
            near = get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {known[near[0]]}? " if near else ""
            raise ValueError(f"unknown option {name!r}; {hint}known are {', '.join(options)}")
        if option in said:
            raise ValueError(f"option {option} was given twice, once as {name!r}; give it once")
        said[option] = value.strip()
    return said


def _what(said: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, Queues | None]:
    """Topics, pattern or queues: one of them."""
    words = [word for word in ("subscribe", "subscribePattern", "assign") if said.get(word)]
    if not words:
        raise ValueError('option subscribe is missing; give topics, as in "orders,payments"')
    if len(words) > 1:
        raise ValueError(f"options {' and '.join(words)} were given; give one of them")
    if words[0] == "subscribe":
        return _topics(said["subscribe"].split(","), "subscribe"), None, None
    if words[0] == "subscribePattern":
        pattern = said["subscribePattern"]
        try:
            re.compile(pattern)
        except re.error as wrong:
            raise ValueError(
                f"option subscribePattern is {pattern!r}, which is no regular expression: {wrong}"
            ) from None
        return (), pattern, None
    queues = _json(said["assign"])
    if not isinstance(queues, dict) or not all(_is_queue_list(each) for each in queues.values()):
        raise ValueError(
            f"option assign is {said['assign'][:200]!r}; give JSON such as "
            '{"orders": [0, 1], "payments": ["broker-a:0"]} with the queues of each topic'
        )
    found = {topic: [str(queue) for queue in each] for topic, each in queues.items()}
    return _topics(found, "assign"), None, found


def _topics(names: Any, option: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name for part in names if (name := part.strip())))
    if not topics:
        raise ValueError(f'option {option} names no topic; give some, as in "orders,payments"')
    if len(topics) > TOPICS_MAX:
        raise ValueError(f"option {option} has {len(topics)} topics, the limit is {TOPICS_MAX}")
    for topic in topics:
        _legal(option, topic)
    return topics


def _legal(option: str, name: str) -> None:
    try:
        check_group(name) if option == "group" else check_topic(name)
    except Refusal as refusal:
        raise ValueError(f"option {option}: {refusal.remark}") from None


def _place(said: Mapping[str, str], which: str, default: str) -> Place:
    """The start or the end of a read; ValueError if more than one option gives it."""
    words = (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets")
    given = [word for word in words if said.get(word)]
    if len(given) > 1:
        raise ValueError(f"options {' and '.join(given)} were given; give one of them")
    if given == [words[0]]:
        return Place(default, _moment(said, words[0]))
    if given == [words[1]]:
        times = _json(said[words[1]])
        if not isinstance(times, dict) or not all(
            _is_offset_map(each, 0) for each in times.values()
        ):
            raise ValueError(
                f"option {words[1]} is {said[words[1]][:200]!r}; give JSON such as "
                '{"orders": {"0": 1700000000000}} with ms since the epoch for each queue'
            )
        return Place(default, times)
    return Place(_offsets(said, words[2], default))


def _moment(said: Mapping[str, str], option: str) -> int:
    """A time in ms since the epoch: given so, or as how long ago it was."""
    found = re.fullmatch(r"(\d{1,18})\s*(|ms|s|m|h|d)", said[option], re.ASCII)
    if found is None:
        raise ValueError(
            f"option {option} is {said[option][:200]!r}; give ms since the epoch, or how long ago: "
            "30s, 15m, 2h, 7d"
        )
    if not found[2]:
        return int(found[1])
    return max(0, int(time.time() * 1000) - int(found[1]) * _TIMES_MS[found[2]])


def _offsets(said: Mapping[str, str], option: str, default: str) -> str | Offsets:
    text = said.get(option) or default
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    read = _json(text)
    if not isinstance(read, dict) or not all(_is_offset_map(inner) for inner in read.values()):
        raise ValueError(
            f"option {option} is {text[:200]!r}; give {EARLIEST}, {LATEST} or JSON such as "
            '{"orders": {"0": 23, "broker-b:0": -1}} with an offset, -2 (earliest) or -1 (latest) '
            "for each queue"
        )
    return read


def _store_path(said: Mapping[str, str]) -> str | None:
    path = said.get("storePath") or None
    if path is not None and said.get("filterSql"):
        raise ValueError(
            "options storePath and filterSql were both given; only a broker evaluates conditions, "
            "read through it or filter the rows in Spark"
        )
    return path


def _lake_config(said: Mapping[str, str], stream: bool | None) -> str | None:
    path = said.get("lakeConfig") or None
    if path is None:
        return None
    if stream is False:
        raise ValueError(
            "option lakeConfig is for streams; aerobee.spark.read_table reads a table and what "
            "came since as a batch"
        )
    for option in ("filterSql", "includeHeaders", "dedup"):
        if said.get(option, "false").lower() not in ("false", ""):
            raise ValueError(
                f"options lakeConfig and {option} were both given; what is in a table can't be "
                f"read with {option}: leave one of them out"
            )
    return path


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_offset_map(value: object, least: int = EARLIEST_OFFSET) -> bool:
    return isinstance(value, dict) and all(
        type(offset) is int and offset >= least for offset in value.values()
    )


def _is_queue_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(q) in (int, str) for q in value)


def _time_ms(said: Mapping[str, str], option: str, default: str) -> int:
    text = said.get(option) or default
    found = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|h)", text)
    if found is None:
        raise ValueError(f"option {option} is {text!r}; give a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _TIMES_MS[found[2]]


def _bytes(said: Mapping[str, str], option: str) -> int | None:
    text = said.get(option)
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)b?", text.lower(), re.ASCII)
    size = 0 if found is None else int(found[1]) << 10 * " kmgt".index(found[2] or " ")
    if not 1 <= size <= BYTES_MAX:
        raise ValueError(
            f"option {option} is {text!r}; give bytes, or a number with k, m, g or t: 512m, 2g"
        )
    return size


def _number(said: Mapping[str, str], option: str, default: int, least: int, most: int) -> int:
    text = said.get(option)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise ValueError(f"option {option} is {text!r}; give a number from {least} to {most}")
    return int(text)
