"""Dead letters of a group by their ids: those that a visitor has ticked.

An id is the offset id, by which a letter is read where it lies, or the id that its sender gave it,
which its broker finds by the index.
"""

from collections.abc import AsyncIterator, Iterable

from ...client.errors import AerobeeError, NoRouteError
from ...protocol.message.message_id import host_text, parse_offset_message_id
from ...protocol.message.record import Record
from ...protocol.names import DLQ_PREFIX
from ..clusters.clusters import Watched
from ..messages.shown import id_of
from ..texts import text_of
from .action import Field, Unfit

LETTERS_MAX = 100
ID_CHARS_MAX = 255
FIELD = Field(
    "letters",
    "Letters",
    chars_max=8_000,
    note="offset ids or message ids, blanks or commas between; empty: all that the rest chooses",
)


def ids_in(text: str) -> list[str]:
    """The ids of a field, each once. Unfit for too many."""
    found = [*dict.fromkeys(text.replace(",", " ").split())]
    if len(found) > LETTERS_MAX:
        raise Unfit(
            "%(count)s letters are given, the limit is %(letters_max)s; send them in parts, or "
            "choose them by Where and a time",
            count=len(found),
            letters_max=LETTERS_MAX,
        ).at(FIELD.name)
    return found


async def picked(
    watched: Watched, group: str, idents: Iterable[str], faults: list[str] | None = None
) -> AsyncIterator[Record]:
    """The letters of a group with these ids, each once. Unfit for one that can't be read, or that
    is none of the group; where `faults` are given, it is noted there."""
    known: set[str] = set()
    for ident in idents:
        try:
            letter = await _letter(watched, group, ident)
        except Unfit as wrong:
            if faults is None:
                raise
            faults.append(text_of(wrong))
            continue
        if letter.offset_id not in known:
            known.add(letter.offset_id)
            yield letter


async def _letter(watched: Watched, group: str, ident: str) -> Record:
    shown = ident[:80]
    try:
        found = await _found(watched, DLQ_PREFIX + group, ident)
    except AerobeeError as wrong:
        raise Unfit(
            "dead letter %(id)s can't be read: %(wrong)s; leave it out if retention took it",
            id=shown,
            wrong=wrong,
        ).at(FIELD.name) from None
    if not found:
        raise Unfit(
            "%(group)s has no dead letter %(id)s on the brokers that answer; take an id of its "
            "dead letters",
            group=group,
            id=shown,
        ).at(FIELD.name)
    if len(found) > 1:
        raise Unfit(
            "%(count)s dead letters of %(group)s have the id %(id)s; give the offset id of each",
            count=len(found),
            group=group,
            id=shown,
        ).at(FIELD.name)
    return found[0]


async def _found(watched: Watched, topic: str, ident: str) -> list[Record]:
    if len(ident) > ID_CHARS_MAX:
        return []
    try:
        host, _ = parse_offset_message_id(ident)
    except ValueError:
        host = None
    # An id names an address: it is only followed to a broker of this cluster.
    if host is not None and host_text(host) in watched.addresses():
        record = await watched.admin.message(ident)
        return [record] if (record.topic, record.offset_id) == (topic, ident.upper()) else []
    try:
        records = await watched.admin.query(topic, ident, unique=True)
    except NoRouteError:
        return []
    return [one for one in records if one.topic == topic and id_of(one) == ident]
