"""`aerobee message ID`: one stored message, found by either of the two ids that messages have.

An offset id names a broker and is looked up there. An id that the sender gave is looked up in a
topic, or in all topics of users if they are few.
"""

import argparse
import asyncio
from collections.abc import Iterable
from contextlib import suppress

from ...client.admin.admin import Admin
from ...client.base.concurrent import each
from ...client.base.words import counted
from ...client.errors import BrokerError
from ...protocol.aio.connection import host_bytes
from ...protocol.message.message_id import host_text, parse_offset_message_id
from ...protocol.message.record import Record
from ..connecting import add_admin
from ..named import user_topics
from ..output.command_error import CommandError
from ..output.message_object import body_of, object_of, time_text
from ..output.sanitize import json_line, sanitize, sanitize_body

TOPICS = "topics of users"
TOPICS_MAX = 500  # searched without --topic; each is a request to each of its brokers


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("id", metavar="ID", help="of a receipt, of `sub --json`, or of a broker's log")
    add("--topic", metavar="TOPIC", help="where to look for an id that the sender gave (all)")
    add_admin(parser, message, "an object instead of lines")


async def message(admin: Admin, options: argparse.Namespace) -> int:
    """Shows the message."""
    record = await _find(admin, options.id, options.topic)
    found = object_of(record)
    found |= {
        "offset_id": record.offset_id,
        "born": time_text(record.born_ms),
        "sender": host_text(record.born_host),
        "deliveries_before": record.reconsume_times,
        "size": record.size,
    }
    if options.json:
        print(json_line(found))
        return 0
    for name in ("body", "bodyBase64"):
        found.pop(name, None)
    width = max(map(len, found))
    for name, value in found.items():
        if isinstance(value, list):
            value = " ".join(value)
        if isinstance(value, dict):
            value = ", ".join(f"{key}={text}" for key, text in value.items())
        text = "-" if value in (None, "") else sanitize(str(value))
        print(f"{name.replace('_', ' '):<{width}}  {text}")
    print()
    print(sanitize_body(body_of(record)).decode())
    return 0


async def _hosts(brokers: Iterable[str]) -> set[bytes]:
    """The IP address and port of each broker, in the form of ids; their hosts may be names."""
    found = set()
    for broker in brokers:
        host, _, port = broker.rpartition(":")
        with suppress(OSError, ValueError):  # this machine doesn't know the name
            for *_, name in await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port):
                found.add(host_bytes(name))
    return found


async def _find(admin: Admin, msg_id: str, topic: str | None) -> Record:
    """The message; CommandError when no broker has it."""
    try:
        host, _ = parse_offset_message_id(msg_id)
    except ValueError as wrong:
        raise CommandError(f"{wrong}; give the id of a receipt or of `sub --json`") from None
    info = await admin.cluster_info()
    brokers = {
        one for data in info.broker_addr_table.values() for one in data.broker_addrs.values()
    }
    if host in await _hosts(brokers):
        try:
            return await admin.message(msg_id)
        except BrokerError as wrong:
            raise CommandError(f"message {msg_id} is not there (any more): {wrong}") from wrong
    topics = [topic] if topic else await user_topics(admin)
    if len(topics) > TOPICS_MAX:
        raise CommandError(
            f"there are {len(topics)} topics, the limit for looking through all is {TOPICS_MAX}; "
            "say in which it is with --topic"
        )
    found = await each(topics, lambda name: admin.query(name, msg_id, unique=True))
    records = [record for some in found for record in some]
    if not records:
        where = f"topic {topic}" if topic else counted(len(topics), "topic of users", TOPICS)
        raise CommandError(
            f"message {msg_id} is not in {where} (any more); retries and dead letters are looked "
            "through with --topic, and a moment may pass until a new one can be found"
        )
    return records[0]
