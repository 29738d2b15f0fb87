"""The columns of a message as a row, and their Spark types; `decode` has the Arrow types.

The Spark source and the tables of a lake have them. The first ones are those of Spark's Kafka
source, so that a job moves over by its options. `key` is the message's keys (RocketMQ's KEYS
property) as one text, `partition` the queue's id, `timestamp` the time at which the broker stored
the message, `timestampType` therefore always 1 (log append time). Queue ids repeat on every broker:
where a topic lives on several, `brokerName` of the full schema tells their rows apart.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, and its type as Spark's DDL spells it."""

    name: str
    ddl: str


BASE = (
    Column("key", "string"),
    Column("value", "binary"),
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("timestamp", "timestamp"),
    Column("timestampType", "int"),
    Column("tags", "string"),
)
WITH_HEADERS = (Column("headers", "array<struct<key:string,value:binary>>"),)
WITH_FULL = (
    Column("brokerName", "string"),
    Column("queueId", "int"),
    Column("keys", "array<string>"),
    Column("msgId", "string"),
    Column("bornTimestamp", "timestamp"),
    Column("bornHost", "string"),
    Column("flag", "int"),
    Column("sysFlag", "int"),
    Column("reconsumeTimes", "int"),
    Column("properties", "map<string,string>"),
)
# The sink writes it into each message, to detect repeats: query or job, batch, partition and
# number of the row, joined by slashes.
ROW_ID = "AEROBEE_ROW"
ROW_ID_COLUMN = Column("rowId", "string")  # for our own use
BY_NAME = {column.name: column for column in BASE + WITH_HEADERS + WITH_FULL}


def row_columns(*, headers: bool = False, full: bool = False) -> tuple[Column, ...]:
    """The columns of a row with these options."""
    return BASE + (WITH_HEADERS if headers else ()) + (WITH_FULL if full else ())
