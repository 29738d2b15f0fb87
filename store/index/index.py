"""The key index of a store: finds messages by key, in a row of index files ordered by time.

Keys wait in a list until `flush` adds them all at once; a query flushes first. When a file is full,
a new one follows. Each message is indexed under its unique key and each word of KEYS.
"""

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...protocol.message.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from ..base.errors import DamagedStore, readable_errors
from ..base.kernels import Kernels
from ..base.settings import StoreSettings
from ..files import disk
from ..files.segment import Segment, make_folder
from ..files.segments import sorted_out, warn_of
from ..log.key_hash import Hashes, key_hash, key_hashes
from ..log.keys import hashes_of_keys, index_keys, places_of_keys, table_of
from .index_file import NAME_DIGITS, IndexFile, file_bytes, file_name

log = logging.getLogger(__name__)

BATCH_MESSAGES = 4_096  # added at once: the arrays then fit the cache
TABLE_MESSAGES_MIN = 200  # for fewer with several keys the arrays cost more than they save

# A message with keys: topic, properties, log offset, store time in ms, its only key if known.
Pending = tuple[str, bytes, int, int, bytes | None]
_place = itemgetter(2)


class KeyBlock(NamedTuple):
    """The key hashes of consecutive messages of the log, in its order."""

    hashes: Hashes
    places: Hashes
    first: int  # place of the first message in the log
    store_ms: int
    messages: int


class Index:
    """The index. Keys of messages stored since the last flush wait in `pending`, or in blocks
    (`add_block`) where their hashes are known."""

    def __init__(
        self, folder: Path, settings: StoreSettings, now_ms: Callable[[], int], kernels: Kernels
    ) -> None:
        self.kernels = kernels
        self._folder = folder
        self._slots = settings.index_slots
        self._capacity = settings.index_entries
        self._is_enabled = settings.index_enable
        self._now_ms = now_ms
        self.pending: list[Pending] = []
        self._blocks: deque[KeyBlock] = deque()
        self._block_messages = 0
        self.files: list[IndexFile] = []
        self.new_files = False  # made since the folder was synced

    def load(self, *, sure: bool = False) -> None:
        """Open the files. DamagedStore when one has another size than the settings say.

        A file that is empty or whose header is damaged is deleted with all files after it: they are
        rebuilt from the log. With `sure`, the settings are certainly right, and a file of another
        size is deleted, too.
        """
        if not disk.current.is_folder(self._folder):
            return
        size = file_bytes(self._slots, self._capacity)
        with readable_errors(self._folder, "read"):
            entries, strays = sorted_out(self._folder)
            warn_of(strays)
            for number, (name, _, found) in enumerate(entries):
                path = self._folder / name
                if found == 0 or (sure and found != size):
                    log.error("%s has %d bytes instead of %d; it is made again", path, found, size)
                    for late, _, _ in entries[number:]:
                        disk.current.unlink(self._folder / late)
                    return
                if found != size or len(name) != NAME_DIGITS:
                    raise DamagedStore(
                        f"{path} has {found} bytes, index files have {size} with "
                        f"{self._slots} slots (maxHashSlotNum) and {self._capacity} entries "
                        "(maxIndexNum); set these as they were, or delete the file: it is rebuilt"
                    )
                segment = Segment(path, 0, size, writable=True)
                file = IndexFile(segment, self._slots, self._capacity)
                if not file.is_sound:
                    log.error("the header of %s is damaged; the file is made again", path)
                    for late, _, _ in entries[number:]:
                        disk.current.unlink(self._folder / late)
                    return
                self.files.append(file)

    @property
    def file_bytes(self) -> int:
        """The size of an index file."""
        return file_bytes(self._slots, self._capacity)

    @property
    def mark(self) -> tuple[int, int]:
        """The number of files, and the count of the last one: it changes with each added key."""
        return (len(self.files), self.files[-1].count if self.files else 0)

    @property
    def end_offset(self) -> int:
        """A log offset: all messages before it are indexed."""
        return self.files[-1].end_offset if self.files else 0

    def drop_after(self, moment_ms: int) -> None:
        """Delete the files with keys of messages stored after this moment."""
        for file in [file for file in self.files if file.end_ms > moment_ms]:
            self.files.remove(file)
            file.segment.delete()

    def cut_at_file(self, name: str, count: int) -> None:
        """Keep the files up to the one called `name`, and in that one the entries before
        `count`."""
        names = [file.segment.path.name for file in self.files]
        kept = names.index(name) + 1 if name in names else 0
        for file in self.files[kept:]:
            file.segment.delete()
        del self.files[kept:]
        if kept:
            self.files[-1].cut(min(count, self.files[-1].count))

    def cut_at_log(self, log_end: int) -> None:
        """Drop the entries of messages at `log_end` or behind it."""
        while self.files and self.files[-1].end_offset >= log_end and self.files[-1].count > 1:
            file = self.files[-1]
            if file.begin_offset < log_end:
                file.cut(file.count_before(log_end))
                return
            self.files.pop().segment.delete()

    @property
    def waiting(self) -> int:
        """The number of messages with keys that wait for a flush."""
        return len(self.pending) + self._block_messages

    @property
    def first_waiting(self) -> int | None:
        """The log offset of the first message whose keys wait; None if none wait."""
        first = self.pending[0][2] if self.pending else None
        if not self._blocks:
            return first
        return self._blocks[0].first if first is None else min(first, self._blocks[0].first)

    def add_block(self, block: KeyBlock) -> None:
        """Add keys to the waiting ones."""
        self._blocks.append(block)
        self._block_messages += block.messages

    def forget(self, log_end: int) -> None:
        """Drop the waiting keys of messages at `log_end` or behind it; no block spans it."""
        while self.pending and self.pending[-1][2] >= log_end:
            self.pending.pop()
        while self._blocks and self._blocks[-1].first >= log_end:
            self._block_messages -= self._blocks.pop().messages

    def flush(self, log_end: int, most: int | None = None) -> int:
        """Add the waiting keys of messages before `log_end` to the files, of about the first `most`
        messages; returns of how many messages. After DiskFull the keys still wait."""
        if not self._is_enabled:
            self.forget(0)
        most = self.waiting if most is None else most
        done = 0
        while done < most:
            messages = self._flush_first(log_end, min(most - done, BATCH_MESSAGES))
            if not messages:
                break
            done += messages
        return done

    def _flush_first(self, log_end: int, most: int) -> int:
        """One pass of `flush`, for about `most` messages."""
        blocks, alone = self._first(log_end, most)
        if not (blocks or alone):
            return 0
        hashes = [block.hashes for block in blocks]
        places = [block.places for block in blocks]
        counts = list(map(len, hashes))
        times = [np.repeat(np.array([block.store_ms for block in blocks], np.int64), counts)]
        if alone:
            for column, own in zip(
                (hashes, places, times), _keys_of(self.pending[:alone]), strict=True
            ):
                column.append(own)
        keys = [np.concatenate(column) for column in (hashes, places, times)]
        if alone and blocks:
            order = np.argsort(keys[1], kind="stable")
            keys = [column[order] for column in keys]
        self.add(*keys)
        messages = alone
        del self.pending[:alone]
        for block in blocks:
            self._blocks.popleft()
            messages += block.messages
        self._block_messages -= messages - alone
        return messages

    def _first(self, log_end: int, most: int) -> tuple[list[KeyBlock], int]:
        """The waiting keys that come first in the log: blocks, and the number of `pending` ones.

        They are of `most` messages, or of up to one block more, all before `log_end`.
        """
        pending = self.pending
        end = bisect_left(pending, log_end, key=_place)
        blocks: list[KeyBlock] = []
        alone = in_blocks = 0
        for block in self._blocks:
            if alone + in_blocks >= most:
                return blocks, alone
            if block.first >= log_end:
                break
            before = bisect_left(pending, block.first, alone, end, key=_place)
            if before + in_blocks >= most:
                break
            alone = before
            blocks.append(block)
            in_blocks += block.messages
        return blocks, max(alone, min(end, most - in_blocks))

    def add(self, hashes: Hashes, places: Hashes, store_times: Hashes) -> None:
        """Add keys by their hashes, in the order of the log. No waiting key may be before them."""
        done = 0
        while self._is_enabled and done < len(hashes):
            file = self._writable()
            done += file.insert(hashes[done:], places[done:], store_times[done:], self.kernels)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets of messages with this key in a time range, newest first.

        Messages whose keys have the same hash may be among them, and a message that has a key twice
        comes twice. The index has times in seconds, so they may be up to a second too early.
        """
        wanted = key_hash(f"{topic}#{key}")
        for file in reversed(list(self.files)):  # others may work between two offsets
            if file.covers(begin_ms, end_ms):
                yield from file.find(wanted, begin_ms, end_ms)
            if file.begin_ms < begin_ms:
                break

    def take_before(self, log_start: int) -> Segment | None:
        """Remove the first file from the index if all its messages are before `log_start`.

        Returns its segment, which the caller deletes; None if no file is to go. The last file
        stays.
        """
        if len(self.files) < 2 or self.files[0].end_offset >= log_start:
            return None
        return self.files.pop(0).segment

    def release(self) -> None:
        """Close all files."""
        for file in self.files:
            file.segment.release()
        self.files.clear()

    def _writable(self) -> IndexFile:
        previous = self.files[-1] if self.files else None
        if previous is not None and not previous.is_full:
            return previous
        make_folder(self._folder)
        name = file_name(self._now_ms())
        if previous is not None:
            # The files are ordered by name, also when the clock was set back.
            name = max(name, str(int(previous.segment.path.name) + 1))
        file = IndexFile.create(self._folder / name, self._slots, self._capacity, previous)
        self.files.append(file)
        self.new_files = True
        return file


def _keys_of(batch: list[Pending]) -> tuple[Hashes, Hashes, Hashes]:
    """The keys of these messages: hash, log offset and store time of each."""
    keys: list[bytes]
    places: Sequence[int]
    times: Sequence[int]
    topics, _, places, times, only = zip(*batch, strict=True)
    if None in only and len(batch) >= TABLE_MESSAGES_MIN:
        return _keys_by_table(batch)
    if None in only or topics.count(topics[0]) < len(topics):
        keys, places, times = _extract(batch)
    else:
        prefix = f"{topics[0]}#".encode()
        keys = [prefix + key for key in only]
    return key_hashes(keys), np.array(places, np.int64), np.array(times, np.int64)


def _keys_by_table(batch: list[Pending]) -> tuple[Hashes, Hashes, Hashes]:
    """`_keys_of` for many messages, some of which have more keys than the unique one."""
    topics, raws, places, times, _ = zip(*batch, strict=True)
    table = table_of(raws)
    rows, starts, ends = places_of_keys(table)
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    topic_of = np.fromiter(map(numbers.__getitem__, topics), np.int64, len(topics))[rows]
    hashes = hashes_of_keys(table, starts, ends, list(numbers), topic_of)
    return hashes, np.array(places, np.int64)[rows], np.array(times, np.int64)[rows]


def _extract(batch: list[Pending]) -> tuple[list[bytes], Sequence[int], Sequence[int]]:
    """The keys of these messages as `topic#key`, each with its log offset and store time."""
    keys: list[bytes] = []
    places: list[int] = []
    times: list[int] = []
    prefixes: dict[str, bytes] = {}
    for topic, raw, offset, store_ms, only in batch:
        prefix = prefixes.get(topic)
        if prefix is None:
            prefix = prefixes[topic] = f"{topic}#".encode()
        if only is not None:
            keys.append(prefix + only)
            places.append(offset)
            times.append(store_ms)
            continue
        for key in index_keys(raw):
            keys.append(prefix + key)
            places.append(offset)
            times.append(store_ms)
    return keys, places, times


def is_indexed(sys_flag: int) -> bool:
    """True if messages with this system flag have their keys in the index."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
