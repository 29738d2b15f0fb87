"""Compiled writer of the responses to many sends. See `send_table.py`."""

import numpy as np

from .compiled import compiled, int64
from .parse_sends import MINUS, ZERO, Bytes, Numbers, Table, copied

ANSWER_VALUES_MAX = 8 + 16 + 4 * 20  # bytes of the frame's head and its numbers
BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
).copy()
EQUALS = 61


@compiled
def _put_part(parts: Bytes, ends: Numbers, number: int, answers: Bytes, to: int) -> int:
    return copied(parts, ends[number - 1] if number else 0, ends[number], answers, to)


@compiled
def _put_decimal(value: int, answers: Bytes, to: int) -> int:
    if value < 0:
        answers[to] = MINUS
        to += 1
        value = -value
    digits = 1
    rest = value // 10
    while rest:
        digits += 1
        rest //= 10
    for place in range(to + digits - 1, to - 1, -1):
        answers[place] = ZERO + value % 10
        value //= 10
    return to + digits


@compiled
def _put_base64(
    source: Bytes, at: int, end: int, held: int, held_bits: int, target: Bytes, to: int
) -> tuple[int, int, int]:
    """Write these bytes as base64, behind the `held_bits` bits in `held`. Returns the end of the
    text, and the bits left over, fewer than six, with their number."""
    for place in range(at, end):
        held = (held << 8 | int64(source[place])) & 0xFFFF
        held_bits += 8
        while held_bits >= 6:
            held_bits -= 6
            target[to] = BASE64[held >> held_bits & 63]
            to += 1
    return to, held, held_bits


@compiled
def write_responses(
    texts: Bytes,
    sends: Table,
    groups: Table,
    count: int,
    parts: Bytes,
    part_ends: Numbers,
    prefixes: Bytes,
    prefix_ends: Numbers,
    answers: Bytes,
    ends: Numbers,
) -> None:
    """Write the responses to these sends, all of which are stored.

    `prefixes`, cut at `prefix_ends`, has what the recall handles of each group begin with; nothing
    for a group without recall handles. `ends` gets the end of the responses to each chunk. A oneway
    send gets no response.
    """
    to = done = 0
    for number in range(count):
        send = sends[number]
        while done < send.chunk:
            ends[done] = to
            done += 1
        if send.oneway or not send.answered:
            continue
        start = to
        to += 8
        prefix_at = prefix_ends[send.group - 1] if send.group else 0
        prefix_end = prefix_ends[send.group]
        if prefix_at < prefix_end:
            to = _put_part(parts, part_ends, 1, answers, to)
            to, held, bits = _put_base64(prefixes, prefix_at, prefix_end, 0, 0, answers, to)
            to, held, bits = _put_base64(
                texts, send.name_at, send.name_end, held, bits, answers, to
            )
            if bits:
                answers[to] = BASE64[held << (6 - bits) & 63]
                to += 1
                for _ in range(3 - bits // 2):
                    answers[to] = EQUALS
                    to += 1
            to = _put_part(parts, part_ends, 2, answers, to)
        else:
            to = _put_part(parts, part_ends, 0, answers, to)
        to = _put_decimal(groups[send.group].queue_id, answers, to)
        to = _put_part(parts, part_ends, 3, answers, to)
        to = copied(texts, send.name_at, send.name_end, answers, to)
        first = number - send.answered + 1
        for each in range(first, number + 1):
            to = _put_part(parts, part_ends, 4 if each == first else 8, answers, to)
            offset = sends[each].log_offset
            for shift in range(60, -4, -4):
                digit = offset >> shift & 15
                answers[to] = digit + (48 if digit < 10 else 55)
                to += 1
        to = _put_part(parts, part_ends, 5, answers, to)
        to = _put_decimal(sends[first].queue_offset, answers, to)
        to = _put_part(parts, part_ends, 6, answers, to)
        to = _put_decimal(send.opaque, answers, to)
        to = _put_part(parts, part_ends, 7, answers, to)
        size = to - start - 8
        for step in range(4):
            answers[start + step] = (size + 4) >> (24 - 8 * step) & 255
            answers[start + 4 + step] = size >> (24 - 8 * step) & 255
    while done < len(ends):
        ends[done] = to
        done += 1
