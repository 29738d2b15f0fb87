"""Compiled parser of many sends (SEND_MESSAGE_V2, SEND_BATCH_MESSAGE). See `send_table.py`.

It parses eligible sends only: a JSON header as clients write it, without spaces, with the fields of
a send and nothing else; properties of ASCII that are whole pairs, of which one may delay the
message and none is `SINGLE` (`property_effects.py`), with a unique key of letters and digits; a
body. A chunk with any other bytes is left to the slow path (`frame.FrameDecoder`), which decides
what is wrong and what is only unusual. So this parser may refuse anything, and must never parse
anything differently. Each message of a batch is one send here; the last has the response.
"""

from itertools import accumulate
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from .. import codes
from ..command import FLAG_ONEWAY
from ..message.property_effects import EFFECTS, Effect
from ..security import signature
from .compiled import compiled, compiled_unchecked, int64

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Table = npt.NDArray[np.void]

# One send. Places are in the bytes read, those of properties in the texts that were made of them.
# Its response is for the last `answered` sends up to this one, and has the unique key of the
# request (`name`). Its properties as they came end at `sent_end`; a last PAIR_END may follow.
SEND = np.dtype(
    [
        (name, np.int64)
        for name in (
            "chunk",
            "group",
            "oneway",
            "opaque",
            "sys_flag",
            "born_ms",
            "flag",
            "times",
            "body_at",
            "body_end",
            "text_at",
            "text_end",
            "unique_at",
            "unique_end",
            "keys_at",
            "keys_end",
            "wait_at",
            "wait_end",
            "marks",
            "tags",
            "log_offset",
            "queue_offset",
            "size",
            "code",
            "batch",
            "answered",
            "name_at",
            "name_end",
            "sent_end",
        )
    ]
)
# The sends to one queue with the same delay, or none, and the same `marks`: the number of messages,
# the bytes of their bodies and properties, the bytes of the largest, and the number of requests.
# Places are in the names, which are kept between ticks, as the groups are.
GROUP = np.dtype(
    [
        (name, np.int64)
        for name in (
            "topic_at",
            "topic_end",
            "queue_id",
            "wait_at",
            "wait_end",
            "marks",
            "count",
            "bytes",
            "largest",
            "requests",
        )
    ]
)
SEND_BYTES_MIN = 64  # few are shorter; more than have room are left to the slow path
ENTRY_BYTES_MIN = 22  # of a batch
STORED_EXTRA_MAX = 512  # bytes that a record has besides body and own properties, and more
# Marks of a group: a sharding key, batches, no response wanted, a response that need not wait.
FIFO, BATCH, ONEWAY, AT_ONCE = 1, 2, 4, 8
TOTALS_NUMBERS = 5  # that are told of each group
# Of each signed request: its chunk and group, where what was signed begins and ends in `contents`,
# and where the user's name and the signature do in the bytes read.
SIGNED_NUMBERS = 8
GROUPS_MAX = 1_024  # that are kept, and in a tick
NAMES_BYTES = 256 << 10  # of these
WAITING_TEXT_MAX = 8_000  # bytes of properties, to which some come where the message has to wait
NOT_ELIGIBLE = -1

SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = codes.SEND_MESSAGE_V2, codes.SEND_BATCH_MESSAGE
SYS_FLAGS = 0x703  # compressed and how, several tags
INT32_MAX = (1 << 31) - 1
QUOTE, BACKSLASH, COMMA, COLON, MINUS, SLASH = 34, 92, 44, 58, 45, 47
OPEN, CLOSE, ZERO, NINE = 123, 125, 48, 57
NAME_END, PAIR_END = 1, 2


def _word(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8).copy()


# The names of the properties with an effect, in the order of their first bytes: where each ends,
# its effect, and for each byte how many names begin with a smaller one.
_NAMES = sorted(EFFECTS, key=lambda name: name[0])
NAMES = _word("".join(_NAMES))
NAME_ENDS = np.array([0, *accumulate(map(len, _NAMES))], np.int64)
NAME_EFFECTS = np.array([EFFECTS[name] for name in _NAMES], np.int64)
FIRST_BYTES = np.searchsorted([ord(name[0]) for name in _NAMES], np.arange(129))
# Machine code is kept until this file changes, so a change of the table has to change this file.
EFFECTS_CRC = 0xA9D2FB67
if (_found := crc32(NAMES.tobytes() + NAME_EFFECTS.tobytes())) != EFFECTS_CRC:
    raise ImportError(
        "the table of property_effects.py has changed, so that this module must be compiled "
        f"again: set EFFECTS_CRC = 0x{_found:08X}"
    )
NO_EFFECT, UNIQUE_KEY, KEYS, TAGS, ORDER, WAIT, DELAY, SINGLE = (each.value for each in Effect)
# The values that change from send to send of a client: kind, start and end of each, then their
# number.
QUEUE_ID, BORN, PROPERTIES, OPAQUE_NUMBER, SIGNATURE_TEXT = 0, 1, 2, 3, 4
SPANS = 3 * 5
# The start and end of each field's value in a custom header: a to n, then these two.
LETTERS, PROPERTIES_LETTER = 14, 8
ACCESS_KEY, SIGNATURE = 14, 15
FIELDS = 16
SIGNING_NAME_BYTES = 9  # of each of the two
# The members of a header, each with its bit.
CODE, FLAG, OPAQUE, VERSION, LANGUAGE, EXT_FIELDS, SERIALIZE_TYPE = 1, 2, 4, 8, 16, 32, 64
NEEDED = CODE | FLAG | OPAQUE | EXT_FIELDS
NUMBERS = CODE | FLAG | OPAQUE | VERSION
TEXTS = LANGUAGE | SERIALIZE_TYPE
ACCESS_KEY_WORD, SIGNATURE_WORD = _word(signature.ACCESS_KEY), _word(signature.SIGNATURE)
CODE_WORD, FLAG_WORD, OPAQUE_WORD = _word("code"), _word("flag"), _word("opaque")
VERSION_WORD, LANGUAGE_WORD = _word("version"), _word("language")
EXT_FIELDS_WORD, SERIALIZE_TYPE_WORD = _word("extFields"), _word("serializeTypeCurrentRPC")
TRUE, FALSE = _word("true"), _word("false")


@compiled
def uint32_at(data: Bytes, at: int) -> int:
    """The big-endian number of 32 bits at `at`."""
    return (
        (int64(data[at]) << 24)
        | (int64(data[at + 1]) << 16)
        | (int64(data[at + 2]) << 8)
        | int64(data[at + 3])
    )


@compiled_unchecked
def copied(source: Bytes, at: int, end: int, target: Bytes, to: int) -> int:
    """Copy these bytes to `to` in the target; returns their end there."""
    if at < 0 or end < at or end > len(source) or to < 0 or to + end - at > len(target):
        raise IndexError("bytes are to be copied from or to a place outside of the array")
    # Unsigned places can't count from the end, which lets the compiler copy many bytes at a time.
    first, behind = np.uint64(at), np.uint64(to)
    for place in range(np.uint64(end - at)):
        target[behind + place] = source[first + place]
    return to + end - at


@compiled
def _alike(data: Bytes, at: int, end: int, others: Bytes, other_at: int, other_end: int) -> bool:
    """True if the two ranges have the same bytes."""
    if end - at != other_end - other_at:
        return False
    for step in range(end - at):  # noqa: SIM110 - numba reads loops
        if data[at + step] != others[other_at + step]:
            return False
    return True


@compiled
def _starts(data: Bytes, at: int, end: int, word: Bytes) -> bool:
    """True if the range begins with this word."""
    return end - at >= len(word) and _alike(data, at, at + len(word), word, 0, len(word))


@compiled
def _is(data: Bytes, at: int, end: int, word: Bytes) -> bool:
    return end - at == len(word) and _starts(data, at, end, word)


@compiled
def _text_end(data: Bytes, at: int, end: int) -> int:
    """The place of the quote that ends the text; `NOT_ELIGIBLE` if the text has an escape or a
    character that is not printable ASCII."""
    while at < end:
        one = data[at]
        if one == QUOTE:
            return at
        if one < 32 or one == BACKSLASH or one >= 127:
            return NOT_ELIGIBLE
        at += 1
    return NOT_ELIGIBLE


@compiled
def _number(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The decimal number that begins at `at`, and its end: `NOT_ELIGIBLE` if there is no number."""
    is_negative = at < end and data[at] == MINUS
    if is_negative:
        at += 1
    start = at
    value = int64(0)
    while at < end and ZERO <= data[at] <= NINE and at - start < 18:
        value = value * 10 + (int64(data[at]) - ZERO)
        at += 1
    if at == start or (data[start] == ZERO and (at > start + 1 or is_negative)):
        return 0, NOT_ELIGIBLE
    return (-value if is_negative else value), at


@compiled
def _hex(one: int) -> int:
    if 48 <= one <= 57:
        return one - 48
    if 97 <= one <= 102:
        return one - 87
    if 65 <= one <= 70:
        return one - 55
    return -1


@compiled
def _effect(texts: Bytes, start: int, end: int) -> int:
    """The effect of the property with the name in this range."""
    first = texts[start]
    for number in range(FIRST_BYTES[first], FIRST_BYTES[first + 1]):
        if _alike(texts, start, end, NAMES, NAME_ENDS[number], NAME_ENDS[number + 1]):
            return int64(NAME_EFFECTS[number])
    return int64(NO_EFFECT)


@compiled
def _property(texts: Bytes, start: int, name_end: int, end: int, send: Any) -> bool:
    """Note in `send` what a property does. False if the property makes the send not eligible."""
    if name_end <= start or end <= name_end + 1:
        return False
    effect = _effect(texts, start, name_end)
    if effect == UNIQUE_KEY:
        if send.unique_end:
            return False
        send.unique_at, send.unique_end = name_end + 1, end
    elif effect == KEYS:
        if send.keys_end:
            return False
        send.keys_at, send.keys_end = name_end + 1, end
    elif effect == TAGS:
        if send.tags:
            return False
        found = int64(0)
        for at in range(name_end + 1, end):
            found = (found * 31 + int64(texts[at])) & 0xFFFFFFFF
        send.tags = found - (int64(1) << 32) if found >= int64(1) << 31 else found
        # Tags whose hash is 0 could come twice and not be noticed.
        return found != 0
    elif effect == DELAY:
        if send.wait_end:
            return False
        send.wait_at, send.wait_end = start, end
    elif effect == ORDER:
        send.marks |= FIFO
    elif effect == WAIT and _is(texts, name_end + 1, end, FALSE):
        send.marks |= AT_ONCE
    return effect != SINGLE


@compiled
def _properties(
    data: Bytes, at: int, end: int, texts: Bytes, to: int, send: Any
) -> tuple[int, int]:
    """Read the properties from their text in a header. Returns the place of their closing quote
    (`NOT_ELIGIBLE` if they are not eligible) and their end in `texts`."""
    start, name_end = to, -1
    while at < end:
        one = int64(data[at])
        if one == QUOTE:
            send.sent_end = to
            if start < to:
                if name_end < 0 or not _property(texts, start, name_end, to, send):
                    return NOT_ELIGIBLE, to
                texts[to] = PAIR_END
                to += 1
            return at, to
        if one < 32 or one >= 127:
            return NOT_ELIGIBLE, to
        if one == BACKSLASH:
            if at + 1 >= end:
                return NOT_ELIGIBLE, to
            mark = int64(data[at + 1])
            if mark == 117 and at + 5 < end:
                if data[at + 2] != ZERO or data[at + 3] != ZERO:
                    return NOT_ELIGIBLE, to
                high, low = _hex(int64(data[at + 4])), _hex(int64(data[at + 5]))
                if high < 0 or high > 7 or low < 0:
                    return NOT_ELIGIBLE, to
                one = high * 16 + low
                at += 4
            elif mark in (QUOTE, BACKSLASH, SLASH):
                one = mark
            elif mark == 110:
                one = int64(10)
            elif mark == 116:
                one = int64(9)
            elif mark == 114:
                one = int64(13)
            else:
                return NOT_ELIGIBLE, to
            at += 1
        at += 1
        if one == NAME_END:
            if name_end >= 0:
                return NOT_ELIGIBLE, to
            name_end = to
        elif one == PAIR_END:
            if name_end < 0 or not _property(texts, start, name_end, to, send):
                return NOT_ELIGIBLE, to
            start, name_end = to + 1, -1
        texts[to] = one
        to += 1
    return NOT_ELIGIBLE, to


@compiled
def _raw_properties(data: Bytes, at: int, end: int, texts: Bytes, to: int, send: Any) -> int:
    """Read properties in the stored form. Returns their end in `texts`, or `NOT_ELIGIBLE`."""
    start, name_end = to, -1
    while at < end:
        one = data[at]
        at += 1
        if one >= 128:
            return NOT_ELIGIBLE
        if one == NAME_END:
            if name_end >= 0:
                return NOT_ELIGIBLE
            name_end = to
        elif one == PAIR_END:
            if name_end < 0 or not _property(texts, start, name_end, to, send):
                return NOT_ELIGIBLE
            start, name_end = to + 1, -1
        texts[to] = one
        to += 1
    if start < to:
        if name_end < 0 or not _property(texts, start, name_end, to, send):
            return NOT_ELIGIBLE
        texts[to] = PAIR_END
        to += 1
    return to


@compiled
def _entries(
    data: Bytes,
    at: int,
    end: int,
    body_bytes_max: int,
    text_bytes_max: int,
    texts: Bytes,
    to: int,
    sends: Table,
    first: int,
) -> tuple[int, int]:
    """Read the messages of the batch in this range, whose header is in the first of the sends.

    Returns the number of messages, `NOT_ELIGIBLE` if they are not eligible or may be too large
    together; and the end of their texts.
    """
    head = sends[first]
    count, stored = 0, end - at
    while at < end:
        stored += STORED_EXTRA_MAX
        if first + count >= len(sends) or at + ENTRY_BYTES_MIN > end or stored > body_bytes_max:
            return NOT_ELIGIBLE, to
        send = sends[first + count]
        flag, size = uint32_at(data, at + 12), uint32_at(data, at + 16)
        body_at = at + 20
        body_end = body_at + size
        if size == 0 or body_end + 2 > end:
            return NOT_ELIGIBLE, to
        text_at = body_end + 2
        at = text_at + (int64(data[body_end]) << 8 | int64(data[body_end + 1]))
        if at > end:
            return NOT_ELIGIBLE, to
        send.unique_at = send.unique_end = send.keys_at = send.keys_end = 0
        send.wait_at = send.wait_end = send.tags = 0
        send.opaque, send.oneway, send.born_ms = head.opaque, head.oneway, head.born_ms
        send.sys_flag, send.times = head.sys_flag, head.times
        send.name_at, send.name_end = head.name_at, head.name_end
        send.flag = flag - (int64(1) << 32) if flag > INT32_MAX else flag
        send.body_at, send.body_end = body_at, body_end
        send.text_at = to
        to = _raw_properties(data, text_at, at, texts, to, send)
        if to < 0 or to - send.text_at > text_bytes_max or send.wait_end:
            return NOT_ELIGIBLE, to
        send.text_end = to
        send.answered = 0
        count += 1
    sends[first + count - 1].answered = count
    return count, to


@compiled
def _note(spans: Numbers, kind: int, at: int, end: int) -> None:
    """Add the kind, start and end of a value to `spans`."""
    number = spans[SPANS]
    spans[number * 3], spans[number * 3 + 1], spans[number * 3 + 2] = kind, at, end
    spans[SPANS] = number + 1


@compiled_unchecked
def _same(data: Bytes, at: int, other: int, size: int) -> bool:
    """True if the two ranges of `size` bytes are the same."""
    if size < 0 or at < 0 or other < 0 or at + size > len(data) or other + size > len(data):
        return False
    first, second = np.uint64(at), np.uint64(other)
    differs = np.uint8(0)
    for place in range(np.uint64(size)):  # without an exit, so that bytes are compared in blocks
        differs |= data[first + place] ^ data[second + place]
    return bool(differs == 0)


@compiled
def _header_again(
    data: Bytes,
    at: int,
    end: int,
    before: int,
    texts: Bytes,
    to: int,
    send: Any,
    group: Any,
    spans: Numbers,
) -> int:
    """Read a header that equals the previous header except for the values in `spans`.

    Returns the end of its texts, `NOT_ELIGIBLE` if the header differs elsewhere, too. Sets only
    what these values say.
    """
    done = 0
    count = spans[SPANS]
    for number in range(count + 1):
        stop = spans[number * 3 + 1] - before if number < count else end - at
        if not _same(data, at + done, before + done, stop - done):
            return NOT_ELIGIBLE
        if number < count:
            done = spans[number * 3 + 2] - before
    send.text_at = to
    for number in range(count):
        kind = spans[number * 3]
        start, stop = at + spans[number * 3 + 1] - before, at + spans[number * 3 + 2] - before
        if kind == PROPERTIES:
            found, to = _properties(data, start, stop + 1, texts, to, send)
        elif kind == SIGNATURE_TEXT:
            found = _text_end(data, start, stop + 1)
        else:
            value, found = _number(data, start, stop)
            if kind == BORN:
                send.born_ms = value
            elif value > INT32_MAX or value < -INT32_MAX:
                return NOT_ELIGIBLE
            elif kind == QUEUE_ID:
                group.queue_id = value
            else:
                send.opaque = value
        if found != stop:
            return NOT_ELIGIBLE
    send.text_end = to
    return to


@compiled
def _field_name(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The number of the field whose name begins behind this quote, and the start of its value;
    `NOT_ELIGIBLE` for a field that no eligible send has."""
    if at + 5 > end or data[at] != QUOTE:
        return NOT_ELIGIBLE, at
    field, name_end = int64(data[at + 1]) - 97, at + 2
    if data[name_end] != QUOTE:
        name_end = at + 1 + SIGNING_NAME_BYTES
        if name_end + 3 > end:
            return NOT_ELIGIBLE, at
        field = int64(NOT_ELIGIBLE)
        if _is(data, at + 1, name_end, ACCESS_KEY_WORD):
            field = int64(ACCESS_KEY)
        elif _is(data, at + 1, name_end, SIGNATURE_WORD):
            field = int64(SIGNATURE)
    elif field >= LETTERS:
        field = int64(NOT_ELIGIBLE)
    if data[name_end] != QUOTE or data[name_end + 1] != COLON or data[name_end + 2] != QUOTE:
        return NOT_ELIGIBLE, at
    return field, name_end + 3


@compiled
def _fields(  # noqa: C901 - a compiled loop, whose calls cost
    data: Bytes,
    at: int,
    end: int,
    texts: Bytes,
    to: int,
    send: Any,
    group: Any,
    spans: Numbers,
    values: Numbers,
) -> tuple[int, int]:
    """Read the custom header that begins at `at`. Returns its end or `NOT_ELIGIBLE`, and the end
    of its texts."""
    seen = 0
    send.text_at = send.text_end = send.sent_end = to
    for place in range(2 * FIELDS):
        values[place] = 0
    while True:
        letter, at = _field_name(data, at, end)
        if letter < 0 or seen >> letter & 1:
            return NOT_ELIGIBLE, to
        seen |= 1 << letter
        start = at
        if letter == PROPERTIES_LETTER:  # i
            at, to = _properties(data, at, end, texts, to, send)
            send.text_end = to
            _note(spans, PROPERTIES, start, at)
        elif letter in (0, 1, 2, 13, ACCESS_KEY, SIGNATURE):
            # a group, b topic, c default topic, n broker
            at = _text_end(data, at, end)
            if letter == 1:
                group.topic_at, group.topic_end = start, at
            elif letter == SIGNATURE:
                _note(spans, SIGNATURE_TEXT, start, at)
        elif letter in (10, 12):  # k of a unit, m a batch
            at = _text_end(data, at, end)
            is_true = at >= 0 and _is(data, start, at, TRUE)
            if at < 0 or not (is_true or _is(data, start, at, FALSE)):
                return NOT_ELIGIBLE, to
            if letter == 12:
                send.batch = int64(is_true)
        else:
            value, at = _number(data, at, end)
            if letter == 6:  # g
                send.born_ms = value
                _note(spans, BORN, start, at)
            elif value > INT32_MAX or value < -INT32_MAX:
                return NOT_ELIGIBLE, to
            elif letter == 4:  # e
                group.queue_id = value
                _note(spans, QUEUE_ID, start, at)
            elif letter == 5:  # f
                if value & ~SYS_FLAGS:
                    return NOT_ELIGIBLE, to
                send.sys_flag = value
            elif letter == 7:  # h
                send.flag = value
            elif letter == 9:  # j
                send.times = value
        if at < 0 or at + 1 >= end or data[at] != QUOTE:
            return NOT_ELIGIBLE, to
        values[2 * letter], values[2 * letter + 1] = start, at
        at += 1
        if data[at] == CLOSE:
            # b, e, f, g and h have to be there.
            return (at + 1 if seen & 0b11110010 == 0b11110010 else NOT_ELIGIBLE), to
        if data[at] != COMMA:
            return NOT_ELIGIBLE, to
        at += 1


@compiled
def _member(data: Bytes, at: int, end: int) -> int:
    """The bit of the header's member that has this name; 0 if there is none."""
    size = end - at
    if size == 4:
        if data[at] == 99:
            return CODE if _starts(data, at, end, CODE_WORD) else 0
        return FLAG if _starts(data, at, end, FLAG_WORD) else 0
    if size == 6:
        return OPAQUE if _starts(data, at, end, OPAQUE_WORD) else 0
    if size == 7:
        return VERSION if _starts(data, at, end, VERSION_WORD) else 0
    if size == 8:
        return LANGUAGE if _starts(data, at, end, LANGUAGE_WORD) else 0
    if size == 9:
        return EXT_FIELDS if _starts(data, at, end, EXT_FIELDS_WORD) else 0
    return SERIALIZE_TYPE if _is(data, at, end, SERIALIZE_TYPE_WORD) else 0


@compiled
def _header(
    data: Bytes,
    at: int,
    end: int,
    texts: Bytes,
    to: int,
    send: Any,
    group: Any,
    spans: Numbers,
    values: Numbers,
) -> int:
    """Read the header of a send in this range. Returns the end of its texts, or `NOT_ELIGIBLE`.

    `spans` gets the places of the values that change from send to send, `values` the places of the
    values of all fields.
    """
    spans[SPANS] = 0
    if data[at] != OPEN or data[end - 1] != CLOSE:
        return NOT_ELIGIBLE
    seen = 0
    while True:
        at += 1
        if at >= end or data[at] != QUOTE:
            return NOT_ELIGIBLE
        start = at + 1
        name_end = _text_end(data, start, end)
        at = name_end + 2
        if name_end < 0 or at >= end or data[name_end + 1] != COLON:
            return NOT_ELIGIBLE
        bit = _member(data, start, name_end)
        first = data[at]
        if first == QUOTE:
            at = _text_end(data, at + 1, end) + 1
            if at <= 0 or not bit & TEXTS:
                return NOT_ELIGIBLE
        elif first == OPEN:
            if bit != EXT_FIELDS:
                return NOT_ELIGIBLE
            at, to = _fields(data, at + 1, end, texts, to, send, group, spans, values)
            if at < 0:
                return NOT_ELIGIBLE
        else:
            start = at
            value, at = _number(data, at, end)
            if at < 0 or not bit & NUMBERS or value > INT32_MAX or value < -INT32_MAX:
                return NOT_ELIGIBLE
            if bit == OPAQUE:
                send.opaque = value
                _note(spans, OPAQUE_NUMBER, start, at)
            elif bit == CODE:
                send.code = value
            elif bit == FLAG:
                if value not in (0, FLAG_ONEWAY):
                    return NOT_ELIGIBLE
                send.oneway = value
        if seen & bit or at >= end:
            return NOT_ELIGIBLE
        seen |= bit
        if data[at] == CLOSE:
            wanted = SEND_BATCH_MESSAGE if send.batch else SEND_MESSAGE_V2
            if send.code != wanted or seen & NEEDED != NEEDED or at != end - 1:
                return NOT_ELIGIBLE
            return to
        if data[at] != COMMA:
            return NOT_ELIGIBLE


@compiled
def _group_number(
    data: Bytes, texts: Bytes, groups: Table, known: Numbers, names: Bytes, slots: Numbers
) -> int:
    """The number of the group that is written behind the known groups: a new number, or that of an
    equal known group; -1 if there is no room for another. `known` has the number of groups and the
    bytes of their names."""
    count = known[0]
    wanted = groups[count]
    found = int64(wanted.queue_id)
    for place in range(wanted.topic_at, wanted.topic_end):
        found = (found * 31 + int64(data[place])) & 0xFFFFFFFF
    for place in range(wanted.wait_at, wanted.wait_end):
        found = (found * 31 + int64(texts[place])) & 0xFFFFFFFF
    found += wanted.marks
    mask = len(slots) - 1
    slot = (found ^ found >> 15) & mask
    while slots[slot]:
        number = slots[slot] - 1
        other = groups[number]
        if (
            other.queue_id == wanted.queue_id
            and other.marks == wanted.marks
            and _alike(
                data, wanted.topic_at, wanted.topic_end, names, other.topic_at, other.topic_end
            )
            and _alike(texts, wanted.wait_at, wanted.wait_end, names, other.wait_at, other.wait_end)
        ):
            return int64(number)
        slot = (slot + 1) & mask
    to = known[1]
    if to + wanted.topic_end - wanted.topic_at + wanted.wait_end - wanted.wait_at > len(names):
        return -1
    topic_at, topic_end = wanted.topic_at, wanted.topic_end
    wait_at, wait_end = wanted.wait_at, wanted.wait_end
    wanted.topic_at = to
    to = copied(data, topic_at, topic_end, names, to)
    wanted.topic_end, wanted.wait_at = to, to
    to = copied(texts, wait_at, wait_end, names, to)
    wanted.wait_end, known[1] = to, to
    slots[slot] = count + 1
    known[0] = count + 1
    return int64(count)


@compiled
def _count_groups(sends: Table, count: int, groups: Table, used: int, totals: Numbers) -> int:
    """Count the sends of each group; returns the number of groups with sends. `totals` gets for
    each of these its number and the totals that `GROUP` has."""
    for number in range(used):
        group = groups[number]
        group.count = group.bytes = group.largest = group.requests = 0
    for number in range(count):
        send = sends[number]
        group = groups[send.group]
        size = send.body_end - send.body_at + send.text_end - send.text_at
        group.count += 1
        group.bytes += size
        if size > group.largest:
            group.largest = size
        if send.answered:
            group.requests += 1
    at = 0
    for number in range(used):
        group = groups[number]
        if group.count:
            totals[at], totals[at + 1], totals[at + 2] = number, group.count, group.bytes
            totals[at + 3], totals[at + 4] = group.largest, group.requests
            at += TOTALS_NUMBERS
    return at // TOTALS_NUMBERS


@compiled
def _signed_content(
    data: Bytes,
    values: Numbers,
    shift: int,
    texts: Bytes,
    send: Any,
    body_at: int,
    body_end: int,
    contents: Bytes,
    to: int,
) -> int:
    """Write what the sender of a request signed: the values of its fields in the order of their
    names, and the body. Returns the end. The values lie `shift` bytes behind the places in
    `values`."""
    key_at, key_end = values[2 * ACCESS_KEY], values[2 * ACCESS_KEY + 1]
    to = copied(data, key_at + shift, key_end + shift, contents, to)
    for letter in range(LETTERS):
        end = values[2 * letter + 1]
        if letter == PROPERTIES_LETTER:
            to = copied(texts, send.text_at, send.sent_end, contents, to)
        elif end:
            to = copied(data, values[2 * letter] + shift, end + shift, contents, to)
    return copied(data, body_at, body_end, contents, to)


@compiled
def read_sends(  # noqa: C901, PLR0915 - one loop, two scans
    data: Bytes,
    ends: Numbers,
    body_bytes_max: int,
    text_bytes_max: int,
    texts: Bytes,
    sends: Table,
    groups: Table,
    known: Numbers,
    names: Bytes,
    slots: Numbers,
    totals: Numbers,
    spans: Numbers,
    values: Numbers,
    contents: Bytes,
    signed: Numbers,
    consumed: Numbers,
) -> tuple[int, int, int, int]:
    """Read the chunks of `data` that end at `ends`, each from a different connection.

    `groups`, `known`, `names` and `slots` hold the known groups from tick to tick
    (`_group_number`); `totals` gets the totals of the groups of these sends (`_count_groups`).
    `consumed` gets for each chunk how many bytes were whole eligible sends, or 0 if the chunk had
    anything else: then none of its sends is in `sends`. Returns the number of `sends`, the number
    of `totals`, the bytes consumed of all chunks, and the number of signed requests.

    If `signed` has room, only signed requests are eligible: it gets their `SIGNED_NUMBERS`, and
    `contents` what was signed.
    """
    count = to = chunk_start = done = requests = contents_to = 0
    is_guarded = len(signed) > 0
    before = before_size = like = topic_at = topic_end = 0
    for chunk in range(len(ends)):
        chunk_end = ends[chunk]
        first, first_to, first_request, first_content = count, to, requests, contents_to
        at = chunk_start
        is_eligible = True
        while chunk_end - at >= 8:
            length, mixed = uint32_at(data, at), uint32_at(data, at + 4)
            header_at = at + 8
            header_end = header_at + mixed
            end = at + 4 + length
            if mixed > 0xFFFFFF or mixed < 2 or header_end >= end:
                is_eligible = False
                break
            if end > chunk_end:
                # Only the slow path knows whether it may become this long.
                break
            if end - header_end > body_bytes_max or count >= len(sends) or known[0] >= len(groups):
                is_eligible = False
                break
            send, group = sends[count], groups[known[0]]
            send.unique_end = send.keys_end = send.tags = send.wait_at = send.wait_end = 0
            send.marks = 0
            text_end = NOT_ELIGIBLE
            values_at = before  # the header in which the `values` are
            if mixed == before_size:
                text_end = _header_again(
                    data, header_at, header_end, before, texts, to, send, group, spans
                )
            if text_end >= 0:
                same = sends[like]
                send.oneway, send.batch = same.oneway, int64(0)
                send.sys_flag, send.flag, send.times = same.sys_flag, same.flag, same.times
                group.topic_at, group.topic_end = header_at + topic_at, header_at + topic_end
            else:
                send.unique_end = send.keys_end = send.tags = send.wait_at = send.wait_end = 0
                send.times = send.batch = send.marks = 0
                before_size = 0
                values_at = header_at
                text_end = _header(
                    data, header_at, header_end, texts, to, send, group, spans, values
                )
                if text_end >= 0 and not send.batch:
                    before, before_size, like = header_at, mixed, count
                    topic_at, topic_end = group.topic_at - before, group.topic_end - before
            to = text_end
            if to < 0 or not send.unique_end:
                is_eligible = False
                break
            for place in range(send.unique_at, send.unique_end):
                one = texts[place]
                if not (48 <= one <= 57 or 65 <= one <= 90 or 97 <= one <= 122):
                    is_eligible = False
            size = to - send.text_at
            if size > text_bytes_max or (send.wait_end and (send.batch or size > WAITING_TEXT_MAX)):
                is_eligible = False
            if not is_eligible:
                break
            group.wait_at, group.wait_end = send.wait_at, send.wait_end
            group.marks = send.marks
            if send.batch:
                group.marks |= BATCH
            if send.oneway:
                group.marks |= ONEWAY
            send.name_at, send.name_end = send.unique_at, send.unique_end
            content_at, shift = contents_to, header_at - values_at
            if is_guarded:
                if not (values[2 * ACCESS_KEY + 1] and values[2 * SIGNATURE + 1]):
                    is_eligible = False
                    break
                contents_to = _signed_content(
                    data, values, shift, texts, send, header_end, end, contents, contents_to
                )
            came = 1
            if send.batch:
                came, to = _entries(
                    data, header_end, end, body_bytes_max, text_bytes_max, texts, to, sends, count
                )
                if came < 0:
                    is_eligible = False
                    break
            else:
                send.body_at, send.body_end = header_end, end
                send.answered = 1
            number = _group_number(data, texts, groups, known, names, slots)
            if number < 0:
                is_eligible = False
                break
            for place in range(count, count + came):
                sends[place].group, sends[place].chunk = number, chunk
            if is_guarded:
                row = requests * SIGNED_NUMBERS
                signed[row], signed[row + 1] = chunk, number
                signed[row + 2], signed[row + 3] = content_at, contents_to
                for step in range(4):  # begin and end of the user's name, and of the signature
                    signed[row + 4 + step] = values[2 * ACCESS_KEY + step] + shift
                requests += 1
            count += came
            at = end
        if is_eligible:
            consumed[chunk] = at - chunk_start
            done += at - chunk_start
        else:
            consumed[chunk] = 0
            count, to, requests, contents_to = first, first_to, first_request, first_content
            before_size = 0  # it may be one of the forgotten ones
        chunk_start = chunk_end
    return count, _count_groups(sends, count, groups, known[0], totals), done, requests
