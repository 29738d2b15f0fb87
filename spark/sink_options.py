"""The options of a write and the columns of its rows, checked in the driver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..client.base.security import Security
from ..client.producer.producer import DEFAULT_GROUP
from ..protocol.errors import Refusal
from ..protocol.message.properties import KEY_SEPARATOR
from ..protocol.names import check_group, check_topic
from .options import known_options, name_server_of
from .security_options import SECURITY_OPTIONS, flag, security_of

WRITE_OPTIONS = (
    "topic",
    "nameServer",
    "group",
    "transactions",
    *SECURITY_OPTIONS,
)
OF_SPARK = ("path", "checkpointlocation")
TEXT, BYTES, TEXTS, TEXT_MAP = "string", "binary", "array<string>", "map<string,string>"
NUMBERS = ("int", "bigint", "smallint", "tinyint", "float", "double")
# The types of each column; only `value` is required.
COLUMNS: dict[str, tuple[str, ...]] = {
    "value": (BYTES, TEXT),
    "key": (TEXT, BYTES),
    "keys": (TEXTS,),
    "tags": (TEXT,),
    "topic": (TEXT,),
    "properties": (TEXT_MAP,),
    "delay": NUMBERS,
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of a write. Without `topic` each row names its own."""

    name_server: str
    topic: str | None = None
    group: str = DEFAULT_GROUP
    transactions: bool = False
    security: Security = field(default_factory=Security)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write; names are read without regard to case."""
    ours = {name: value for name, value in given.items() if name.lower() not in OF_SPARK}
    said = known_options(ours, WRITE_OPTIONS, {})
    topic, group = said.get("topic") or None, said.get("group") or DEFAULT_GROUP
    try:
        check_group(group)
        if topic is not None:
            check_topic(topic)
    except Refusal as refusal:
        raise ValueError(f"options topic and group: {refusal.remark}") from None
    transactions = flag(said, "transactions", default=False)
    security = security_of(said)
    return WriteOptions(name_server_of(said), topic, group, transactions, security)


def check_columns(fields: Sequence[tuple[str, str]], options: WriteOptions) -> None:
    """ValueError when rows with these columns (name, type as Spark writes it) can't be sent."""
    there = dict(fields)
    for name, kind in fields:
        allowed = COLUMNS.get(name)
        if allowed is None:
            raise ValueError(
                f"column {name!r} can't be written; rows have {', '.join(COLUMNS)}: drop it, or "
                "put it into the value"
            )
        if kind not in allowed:
            raise ValueError(f"column {name} is {kind}; it must be {' or '.join(allowed)}, cast it")
    if "value" not in there:
        raise ValueError("there is no column value; it holds what is sent")
    if "topic" not in there and options.topic is None:
        raise ValueError("no topic is given; set the option topic, or give the rows a column topic")
    if "delay" in there and options.transactions:
        raise ValueError("rows with a delay can't be sent in transactions; leave one of them out")


def row_fields(row: Mapping[str, Any], options: WriteOptions) -> dict[str, Any]:
    """The arguments of the message that a row is; ValueError when it has no topic or no body."""
    topic = options.topic or row.get("topic")
    value = row["value"]
    if topic is None:
        raise ValueError("a row has no topic; set the option topic, or fill the column")
    if not value:
        raise ValueError("a row has an empty value; brokers take no message without a body")
    key = row.get("key") or ""  # all keys in one text, as the column of rows that were read
    text = key.decode() if isinstance(key, bytes) else key
    keys = [each for each in text.split(KEY_SEPARATOR) if each] or row.get("keys") or ()
    properties = row.get("properties") or {}
    return {
        "topic": topic,
        "body": value.encode() if isinstance(value, str) else value,
        "tags": row.get("tags") or None,
        "keys": keys,
        "properties": dict(properties),
        "delay": row.get("delay") or None,
    }
