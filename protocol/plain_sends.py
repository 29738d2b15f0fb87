"""The plain sends of a turn: read at once, and answered at once, by compiled code.

Which sends are plain, `plain_reading.py` says; their records are made by `store/plain_records.py`.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from .plain_answers import ANSWER_VALUES_MAX, write_answers
from .plain_reading import (
    GROUP,
    GROUPS_MAX,
    SEND,
    SEND_BYTES_MIN,
    SPANS,
    Bytes,
    Numbers,
    read_sends,
)

NOTHING = bytes(1)  # an array has to be there


class Group(NamedTuple):
    """What some of the sends have in common; `waits` is the property that says so, or nothing.

    `bytes` are those of the bodies, and of the properties as they came.
    """

    topic: str
    queue_id: int
    waits: str
    messages: int
    bytes: int


class PlainSends:
    """The plain sends of a turn. `answer` is the text of their answers between the values
    (`headers.send.answer_parts`).

    After `read`: the bytes read (`data`), how many sends there are (`count`), `taken` as in
    `read_sends` (None when all of all `pieces` was), and the `groups`.
    """

    def __init__(self, answer: Sequence[bytes]) -> None:
        self._parts = np.frombuffer(b"".join(answer), np.uint8)
        self._part_ends = np.fromiter(accumulate(map(len, answer)), np.int64, len(answer))
        self.texts = np.empty(0, np.uint8)
        self.sends = np.empty(0, SEND)
        self._table = np.zeros(2 * GROUPS_MAX, np.int64)
        self._groups = np.zeros(GROUPS_MAX, GROUP)
        self._spans = np.zeros(SPANS + 1, np.int64)
        self.answers = np.empty(0, np.uint8)
        self.data: Bytes = self.texts
        self.count = 0
        self.pieces = 0
        self.taken: list[int] | None = None
        self.groups: list[Group] = []

    def read(self, data: bytes, ends: Numbers, body_bytes_max: int, text_bytes_max: int) -> None:
        """Read what came from some connections, from each what ends at one of `ends`, with bodies
        and properties up to these sizes."""
        self.pieces = len(ends)
        self.data = np.frombuffer(data, np.uint8)
        if len(self.data) // SEND_BYTES_MIN >= len(self.sends):
            self.sends = np.empty(64 + len(self.data) // SEND_BYTES_MIN, SEND)
        texts_max = len(self.data) + len(self.sends)
        if texts_max > len(self.texts):
            self.texts = np.empty(texts_max, np.uint8)
        taken = np.empty(len(ends), np.int64)
        self.count, used, done = read_sends(
            self.data, ends, body_bytes_max, text_bytes_max, self.texts, self.sends,
            self._groups, self._table, self._spans, taken,
        )  # fmt: skip
        self.taken = None if done == len(data) else taken.tolist()
        self.groups = [
            Group(
                data[start:end].decode(),
                queue_id,
                self.texts[wait_at:wait_end].tobytes().decode() if wait_end else "",
                messages,
                size,
            )
            for start, end, queue_id, wait_at, wait_end, messages, size in self._groups[
                :used
            ].tolist()
        ]

    def pieces_of(self, groups: list[int]) -> set[int]:
        """The pieces that have a message of one of the groups with these numbers."""
        sends = self.sends[: self.count]
        return set(sends["piece"][np.isin(sends["group"], groups)].tolist())

    def write_answers(self, words: Sequence[bytes]) -> Numbers:
        """Write the `answers`; where those to each piece end. All sends have their places.

        `words` has for each group what its recall handles begin with, nothing without handles.
        """
        handles = 2 * (max(map(len, words))) if any(words) else 0
        most = self.count * (len(self._parts) + ANSWER_VALUES_MAX + handles) + 3 * len(self.texts)
        if most > len(self.answers):
            self.answers = np.empty(2 * most, np.uint8)
        ends = np.empty(self.pieces, np.int64)
        write_answers(
            self.texts, self.sends, self._groups, self.count, self._parts, self._part_ends,
            np.frombuffer(b"".join(words) or NOTHING, np.uint8),
            np.fromiter(accumulate(map(len, words)), np.int64, len(words)),
            self.answers, ends,
        )  # fmt: skip
        return ends
