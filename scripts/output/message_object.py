"""A stored message as a JSON object, as `sub --json` prints and `pub --json` reads it."""

import base64
from datetime import UTC, datetime
from typing import Any

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.record import Record
from .command_error import CommandError


def body_of(record: Record) -> bytes:
    """The body as it was sent; CommandError when it can't be decompressed."""
    try:
        return decompress(record.body, record.sys_flag)
    except (Malformed, CompressionMissing) as wrong:
        raise CommandError(
            f"message {record.offset_id} (queue {record.queue_id}, offset {record.queue_offset}) "
            f"can't be unpacked: {wrong}"
        ) from wrong


def id_of(record: Record) -> str:
    """The id that the sender gave it, or its offset id."""
    return record.properties.get(props.UNIQ_KEY) or record.offset_id


def object_of(record: Record) -> dict[str, Any]:
    """The message with the properties of users."""
    pairs = record.properties
    found: dict[str, Any] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "id": id_of(record),
        "stored": time_text(record.store_ms),
        "tags": pairs.get(props.TAGS),
        "keys": props.keys_of(pairs),
        "properties": props.own(pairs),
    }
    body = body_of(record)
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(body).decode()
    return found


def time_text(ms: int) -> str:
    """A time in ms since the epoch as ISO 8601, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
