"""JSON bodies as typed columns, and malformed bodies with the reason (`ingest --parse`).

Every row of a topic is in exactly one of `typed` and `malformed`. Columns made of the message's own
fields have the prefix `message_`; a body may have a field of any other name.
"""

import json
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from .ddl import fault_in
from .session import SparkFailed

SCHEMA_BYTES_MAX = 1 << 20  # of the file
PREFIX = "message_"
FROM_MESSAGE = ("key", "tags", "topic", "partition", "offset", "timestamp")
_BROKEN, _BODY, _FIELDS = "__broken", "__body", "__fields"


def read_schema_text(given: str) -> str:
    """A schema, given as its text or as the file that has it; SparkFailed when the file can't be
    read or is too long. What has a blank or a brace is a text, unless a file has that name."""
    path = Path(given)
    if any(sign in given for sign in " {") and not path.is_file():
        return given.strip()
    try:
        data = path.read_bytes()
        text = data.decode().strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise SparkFailed(f"the schema {path} can't be read: {wrong}") from None
    if not text or len(data) > SCHEMA_BYTES_MAX:
        raise SparkFailed(
            f"the schema {path} has {len(data)} bytes; give 1 to {SCHEMA_BYTES_MAX}, as in "
            '"id bigint, price double" or the JSON that a DataFrame\'s schema.json() gives'
        )
    return text


def check_schema(text: str) -> None:
    """SparkFailed for what can be seen to be wrong before Spark starts."""
    if text.startswith("{"):
        schema_of(text)
        return
    fault = fault_in(text)
    if fault is not None:
        raise _no_schema(text, fault)


def schema_of(text: str) -> StructType:
    """A schema in Spark's DDL, which needs a session, or in its JSON. SparkFailed for neither."""
    try:
        schema = (
            StructType.fromJson(json.loads(text))
            if text.startswith("{")
            else StructType.fromDDL(text)
        )
    except Exception as wrong:  # the parser fails with whatever it stumbles over
        said = str(wrong).strip().splitlines() or [type(wrong).__name__]
        raise _no_schema(text, said[0]) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise SparkFailed(f"the schema {text[:200]!r} has no columns; name at least one")
    clash = [each.name for each in schema if each.name.lower().startswith((PREFIX, "__"))]
    if clash:
        raise SparkFailed(
            f"the schema names {', '.join(clash)}; names that begin with {PREFIX} or __ are taken, "
            "rename them"
        )
    return schema


def _no_schema(text: str, why: str) -> SparkFailed:
    return SparkFailed(
        f"the schema {text[:200]!r} is none: {why}; give DDL as in "
        '"id bigint, price double" or JSON as of schema.json()'
    )


def typed(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows whose bodies fit: the schema's columns, and where each comes from."""
    found = _read(rows, schema).where(_reason(schema).isNull())
    fields = [F.col(_FIELDS).getField(each.name).alias(each.name) for each in schema]
    return found.select(*fields, *(F.col(name).alias(PREFIX + name) for name in FROM_MESSAGE))


def malformed(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows whose bodies don't fit, unchanged, with the `reason`."""
    found = _read(rows, schema).withColumn("reason", _reason(schema))
    names = [F.col(name).alias(PREFIX + name) for name in FROM_MESSAGE]
    return found.where("reason is not null").select("reason", "value", *names)


def _read(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the body as text, its fields (all nullable) and the parser's error."""
    fields = [StructField(each.name, each.dataType) for each in schema]
    wanted = StructType([*fields, StructField(_BROKEN, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    text = rows.withColumn(_BODY, F.col("value").cast("string"))
    return text.withColumn(_FIELDS, F.from_json(_BODY, wanted, options))


def _reason(schema: StructType) -> Column:
    """The reason why a body does not fit the schema; null if it does."""
    fields, body = F.col(_FIELDS), F.col(_BODY)
    wrong = []
    for each in schema:
        value, raw = fields.getField(each.name), F.get_json_object(body, f"$['{each.name}']")
        kind = each.dataType.simpleString()
        wrong.append(F.when(value.isNull() & raw.isNotNull(), F.lit(f"{each.name} is no {kind}")))
        if not each.nullable:
            wrong.append(F.when(value.isNull() & raw.isNull(), F.lit(f"{each.name} is missing")))
    named = F.concat_ws(", ", *wrong)
    nested = any(isinstance(each.dataType, ArrayType | MapType | StructType) for each in schema)
    rest = "a field within another has the wrong type" if nested else "the body does not fit"
    return (
        F.when(~F.is_valid_utf8(body), "the body is no UTF-8")
        .when(~F.ltrim(body).startswith("{"), "the body is no JSON object")
        .when(F.get_json_object(body, "$").isNull(), "the body is no JSON")
        .when(fields.isNull(), "the body is no JSON")
        .when(named != "", named)
        .when(fields.getField(_BROKEN).isNotNull(), rest)
    )
