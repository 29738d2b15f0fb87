"""The eligible sends of a tick: parsed and answered together, by compiled code.

`parse_sends.py` says which sends are eligible; `store/kernels/record_encoder.py` makes their
records.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from .parse_sends import (
    AT_ONCE,
    BATCH,
    FIELDS,
    FIFO,
    GROUP,
    GROUPS_MAX,
    NAMES_BYTES,
    ONEWAY,
    SEND,
    SEND_BYTES_MIN,
    SIGNED_NUMBERS,
    SPANS,
    TOTALS_NUMBERS,
    Bytes,
    Numbers,
    read_sends,
)
from .send_responses import ANSWER_VALUES_MAX, write_responses

BATCH_ROOM = 1_024  # sends for which there is room besides: those of a batch may be short
NOTHING = np.frombuffer(bytes(1), np.uint8)  # an array has to be there, of the same kind


class Group(NamedTuple):
    """The values that some sends have in common. `waits` is the property that delays the messages,
    or empty; `is_fifo`: they have a sharding key; `is_at_once`: their responses wait neither for
    disk nor for slaves."""

    topic: str
    queue_id: int
    waits: str
    is_fifo: bool = False
    is_batch: bool = False
    is_oneway: bool = False
    is_at_once: bool = False


# The sends of one group: its number, messages, the bytes of their bodies and of their properties as
# they came, those of the largest message, and requests.
GroupTotals = tuple[int, int, int, int, int]


class SendTable:
    """The eligible sends of a tick. `answer` is the text of their responses between the values
    (`headers.send.response_parts`).

    After `read`: the bytes read (`data`), the number of sends (`count`), `consumed` as in
    `read_sends` (None if all bytes of all `chunks` were consumed), and the `group_totals`. The
    `groups` keep their numbers from tick to tick, until they are too many: `forgot` counts how
    often.

    If requests have to be signed (`is_guarded`), `signed` has a row for each signed request: its
    chunk, its group, and start and end of what was signed in `contents`, of the user's name and of
    the signature in the bytes read. Other requests are not eligible. No signature is checked here.
    """

    def __init__(self, answer: Sequence[bytes], *, is_guarded: bool = False) -> None:
        self._is_guarded = is_guarded
        self._values = np.zeros(2 * FIELDS, np.int64)
        self._signed = np.empty(0, np.int64)
        self.contents = np.empty(0, np.uint8)
        self.signed = self._signed.reshape(0, SIGNED_NUMBERS)
        self._template = np.frombuffer(b"".join(answer), np.uint8)
        self._template_ends = np.fromiter(accumulate(map(len, answer)), np.int64, len(answer))
        self.texts = np.empty(0, np.uint8)
        self.sends = np.empty(0, SEND)
        self._slots = np.zeros(2 * GROUPS_MAX, np.int64)
        self._groups = np.zeros(GROUPS_MAX, GROUP)
        self._known = np.zeros(2, np.int64)
        self._names = np.empty(NAMES_BYTES, np.uint8)
        self._found = np.empty(TOTALS_NUMBERS * GROUPS_MAX, np.int64)
        self._spans = np.zeros(SPANS + 1, np.int64)
        self._no_prefixes = np.zeros(GROUPS_MAX, np.int64)
        self.answers = np.empty(0, np.uint8)
        self.data: Bytes = self.texts
        self.count = 0
        self.chunks = 0
        self.consumed: list[int] | None = None
        self.group_totals: list[GroupTotals] = []
        self.groups: list[Group] = []
        self.forgot = 0

    def read(self, data: bytes, ends: list[int], body_bytes_max: int, text_bytes_max: int) -> None:
        """Parse the chunks of some connections, one of each, which end at `ends`; bodies and
        properties may have these sizes."""
        self.chunks = len(ends)
        self.data = np.frombuffer(data, np.uint8)
        if len(self.data) // SEND_BYTES_MIN >= len(self.sends):
            self.sends = np.empty(BATCH_ROOM + len(self.data) // SEND_BYTES_MIN, SEND)
        texts_max = len(self.data) + len(self.sends)
        if texts_max > len(self.texts):
            self.texts = np.empty(texts_max, np.uint8)
            if self._is_guarded:
                self.contents = np.empty(texts_max, np.uint8)
                self._signed = np.empty(SIGNED_NUMBERS * len(self.sends), np.int64)
        if self._known[0] > GROUPS_MAX // 2 or self._known[1] > NAMES_BYTES // 2:
            self.forget()
        consumed = np.empty(len(ends), np.int64)
        self.count, totals, done, signed = read_sends(
            self.data,
            np.array(ends, np.int64),
            body_bytes_max,
            text_bytes_max,
            self.texts,
            self.sends,
            self._groups,
            self._known,
            self._names,
            self._slots,
            self._found,
            self._spans,
            self._values,
            self.contents,
            self._signed,
            consumed,
        )
        self.consumed = None if done == len(data) else consumed.tolist()
        found = iter(self._found[: TOTALS_NUMBERS * totals].tolist())
        self.group_totals = list(zip(found, found, found, found, found, strict=True))
        if self._known[0] > len(self.groups):
            self._learn()
        if self._is_guarded:
            self.signed = self._signed[: SIGNED_NUMBERS * signed].reshape(signed, SIGNED_NUMBERS)

    def _learn(self) -> None:
        """Append the new groups to `groups`."""
        names = self._names[: self._known[1]].tobytes().decode()
        for topic_at, topic_end, queue_id, wait_at, wait_end, marks, *_ in self._groups[
            len(self.groups) : self._known[0]
        ].tolist():
            marked = (bool(marks & mark) for mark in (FIFO, BATCH, ONEWAY, AT_ONCE))
            group = Group(names[topic_at:topic_end], queue_id, names[wait_at:wait_end], *marked)
            self.groups.append(group)

    def forget(self) -> None:
        """Drop the groups; new ones are numbered from 0."""
        self._known[:] = 0
        self._slots[:] = 0
        self.groups = []
        self.forgot += 1

    def chunks_of(self, groups: list[int]) -> set[int]:
        """The chunks that have a message of one of the groups with these numbers."""
        sends = self.sends[: self.count]
        return set(sends["chunk"][np.isin(sends["group"], groups)].tolist())

    def write_responses(self, handle_prefixes: Mapping[int, bytes]) -> Numbers:
        """Write the `answers`; returns their end for each chunk. All sends must be stored.

        `handle_prefixes` has what the recall handles of a group begin with, by the number of the
        group; groups without recall handles are not in it.
        """
        handles = 2 * max(map(len, handle_prefixes.values())) if handle_prefixes else 0
        each_max = len(self._template) + ANSWER_VALUES_MAX + handles
        most = self.count * each_max + 3 * len(self.texts)
        if most > len(self.answers):
            self.answers = np.empty(2 * most, np.uint8)
        ends = np.empty(self.chunks, np.int64)
        texts, text_ends = NOTHING, self._no_prefixes
        if handle_prefixes:
            all_prefixes = [handle_prefixes.get(number, b"") for number in range(len(self.groups))]
            texts = np.frombuffer(b"".join(all_prefixes), np.uint8)
            text_ends = np.fromiter(accumulate(map(len, all_prefixes)), np.int64, len(all_prefixes))
        write_responses(
            self.texts,
            self.sends,
            self._groups,
            self.count,
            self._template,
            self._template_ends,
            texts,
            text_ends,
            self.answers,
            ends,
        )
        return ends
