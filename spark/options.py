"""What a user says about a read, in the words of Spark's Kafka source.

Everything is checked here, in the driver, before any task starts; a word that is unknown or doesn't
fit raises `ValueError` with the word, its value and what would do.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ..protocol.errors import Refusal
from ..protocol.names import check_group, check_topic

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
DEFAULT_GROUP = "aerobee-spark"
MESSAGES_PER_PULL = 32  # what RocketMQ's brokers give at most unless they are set otherwise
MESSAGES_PER_PULL_MAX = 1024
PARTITIONS_MAX = 100_000  # of one read
TOPICS_MAX = 1_000  # of one read

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1  # as Kafka's source numbers them in JSON

OPTIONS = (
    "subscribe",
    "nameServer",
    "group",
    "startingOffsets",
    "endingOffsets",
    "maxMessagesPerPull",
    "minPartitions",
    "includeHeaders",
    "rowSchema",
    "failOnDataLoss",
)

Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, checked. `starting` and `ending` hold for each topic (see `offset_of`)."""

    topics: tuple[str, ...]
    name_server: str = DEFAULT_NAME_SERVER
    group: str = DEFAULT_GROUP
    starting: str | Offsets = EARLIEST
    ending: str | Offsets = LATEST
    messages_per_pull: int = MESSAGES_PER_PULL
    partitions_min: int = 0
    headers: bool = False
    full: bool = False
    fail_on_data_loss: bool = True


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read; names are read without regard to case, as Spark does."""
    known = {name.lower(): name for name in OPTIONS}
    said: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            near = get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {known[near[0]]}? " if near else ""
            raise ValueError(f"unknown option {name!r}; {hint}known are {', '.join(OPTIONS)}")
        said[known[name.lower()]] = value.strip()
    if said.get("rowSchema", "kafka").lower() not in ("kafka", "full"):
        raise ValueError(f"option rowSchema is {said['rowSchema']!r}; give kafka or full")
    group = said.get("group") or DEFAULT_GROUP
    _legal("group", group)
    environment = os.environ.get("NAMESRV_ADDR")
    return ReadOptions(
        topics=_topics(said.get("subscribe", "")),
        # The environment is the driver's; executors may have another.
        name_server=said.get("nameServer") or environment or DEFAULT_NAME_SERVER,
        group=group,
        starting=_offsets(said, "startingOffsets", EARLIEST),
        ending=_offsets(said, "endingOffsets", LATEST),
        messages_per_pull=_number(
            said, "maxMessagesPerPull", MESSAGES_PER_PULL, 1, MESSAGES_PER_PULL_MAX
        ),
        partitions_min=_number(said, "minPartitions", 0, 1, PARTITIONS_MAX),
        headers=_flag(said, "includeHeaders", default=False),
        full=said.get("rowSchema", "").lower() == "full",
        fail_on_data_loss=_flag(said, "failOnDataLoss", default=True),
    )


def queue_names(broker_name: str, queue_id: int) -> tuple[str, str]:
    """How JSON offsets may name a queue: "0" on every broker, or "broker-a:0"."""
    return f"{broker_name}:{queue_id}", str(queue_id)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not topics:
        raise ValueError('option subscribe is missing; give topics, as in "orders,payments"')
    if len(topics) > TOPICS_MAX:
        raise ValueError(f"option subscribe has {len(topics)} topics, the limit is {TOPICS_MAX}")
    for topic in topics:
        _legal("subscribe", topic)
    return topics


def _legal(option: str, name: str) -> None:
    try:
        check_group(name) if option == "group" else check_topic(name)
    except Refusal as refusal:
        raise ValueError(f"option {option}: {refusal.remark}") from None


def _offsets(said: Mapping[str, str], option: str, default: str) -> str | Offsets:
    text = said.get(option) or default
    if text.lower() == default:
        return default
    if text.lower() in (EARLIEST, LATEST):
        raise ValueError(f"option {option} can't be {text} in a batch read; give {default} or JSON")
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict) or not all(_is_offset_map(inner) for inner in read.values()):
        raise ValueError(
            f"option {option} is {text[:200]!r}; give {default} or JSON such as "
            '{"orders": {"0": 23, "broker-b:0": -1}} with an offset, -2 (earliest) or -1 (latest) '
            "for each queue"
        )
    return read


def _is_offset_map(value: object) -> bool:
    return isinstance(value, dict) and all(
        type(offset) is int and offset >= EARLIEST_OFFSET for offset in value.values()
    )


def _number(said: Mapping[str, str], option: str, default: int, least: int, most: int) -> int:
    text = said.get(option)
    if not text:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"option {option} is {text!r}; give a number from {least} to {most}")
    return int(text)


def _flag(said: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = (said.get(option) or str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {option} is {said[option]!r}; give true or false")
    return text == "true"
