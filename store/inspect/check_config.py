"""Checks the small files of a store: the checkpoint, and config/*.json with their offsets."""

from pathlib import Path
from typing import Any
from zlib import crc32

from ...protocol.codec.fastjson import parse
from ..base.errors import StoreError
from ..files import checkpoint as checkpoints
from ..files.checkpoint import Checkpoint
from ..files.json_file import FILE_BYTES_MAX
from ..files.json_journal import JOURNAL_SUFFIX, JsonJournal
from ..files.listing import entries_of
from ..queues.consume_queue import SCHEDULE_TOPIC
from ..queues.deleted import Deleted
from .check_queues import QueuesCheck
from .findings import Report

CHECKPOINT = "checkpoint"
CONFIG = "config"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"
TOPICS = "topics.json"


def check_config(root: Path, report: Report, *, is_open: bool) -> "Offsets":
    """Check whether each file can be read; returns the offsets in them, to be compared later.

    Java writes the files in place: where a broker runs or has crashed, the file or its .bak may be
    cut off.
    """
    part = report.part(CONFIG, "offsets")
    folder = root / CONFIG
    names = {entry.name for entry in entries_of(folder) if not entry.is_folder}
    texts: dict[str, Any] = {}
    for name in sorted({name.removesuffix(".bak") for name in names if ".json" in name}):
        if name.endswith(".new"):
            continue  # a save that was not finished
        if name.endswith(JOURNAL_SUFFIX):
            continue  # checked below, with its file
        part.files += 1
        reasons = {}
        is_some = False
        for candidate in (name, name + ".bak"):
            if candidate not in names:
                continue
            try:
                data = (folder / candidate).read_bytes()
                if not data.strip():
                    reasons[candidate] = "is empty"
                    continue
                is_some = True
                texts.setdefault(name, parse(data, FILE_BYTES_MAX, FILE_BYTES_MAX))
            except (OSError, ValueError) as wrong:
                reasons[candidate] = f"can't be read: {wrong}"
        tell = report.note if is_open and (name in texts or not is_some) else report.damage
        for candidate, reason in reasons.items():
            others = "; the .bak is taken instead" if name in texts and candidate == name else ""
            tell(CONFIG, folder / candidate, None, reason + others)
    _add_journal(folder / TOPICS, texts, report, is_open=is_open)
    return Offsets(folder, texts, report)


def _add_journal(path: Path, texts: dict[str, Any], report: Report, *, is_open: bool) -> None:
    """Apply the topics that were added and deleted since their file was written."""
    journal = JsonJournal(path)
    try:
        lines = journal.load(parse)
        size = journal.path.stat().st_size if lines else 0
    except (OSError, StoreError) as wrong:
        report.damage(CONFIG, journal.path, None, f"can't be read: {wrong}")
        return
    if size > journal.end and not is_open:
        text = f"{size - journal.end} bytes are no whole line; nobody was told that they are safe"
        report.note(CONFIG, journal.path, journal.end, text)
    text = texts.setdefault(path.name, {})
    table = text.setdefault("topicConfigTable", {}) if isinstance(text, dict) else {}
    for line in lines:
        for name in line.get("gone", ()):
            table.pop(name, None)
        table.update(_table(line, "put"))


class Offsets:
    """The offsets in the files: consumed by groups, and delivered of delay levels."""

    def __init__(self, folder: Path, texts: dict[str, Any], report: Report) -> None:
        self._folder = folder
        self._report = report
        self._consumed = _table(texts.get(OFFSETS), "offsetTable")
        self._delivered = _table(texts.get(DELAYS), "offsetTable")
        self._topics = set(_table(texts.get(TOPICS), "topicConfigTable"))

    def compare(self, queues: QueuesCheck, deleted: dict[str, int]) -> None:
        """Report offsets behind the ends of their queues."""
        part = self._report.parts[CONFIG]
        for key, offsets in self._consumed.items():
            topic, _, group = str(key).partition("@")
            for queue_id, offset in offsets.items() if isinstance(offsets, dict) else ():
                part.checked += 1
                self._check(queues, topic, int(queue_id), offset, f"group {group}", OFFSETS)
        for level, offset in self._delivered.items():
            part.checked += 1
            name = f"delay level {level}"
            self._check(queues, SCHEDULE_TOPIC, int(level) - 1, offset, name, DELAYS)

    def _check(
        self, queues: QueuesCheck, topic: str, queue_id: int, offset: Any, who: str, name: str
    ) -> None:
        path = self._folder / name
        queue = queues.simple.get((topic, queue_id))
        end = queues.ends.get((topic, queue_id), 0)
        where = f"{who} is at offset {offset} of topic {topic} queue {queue_id}"
        if not isinstance(offset, int) or offset < -1:
            self._report.damage(CONFIG, path, None, f"{where}, which is none")
        elif offset > end:
            text = f"{where}, which ends at {end}"
            if queue is None and topic not in self._topics:
                self._report.note(CONFIG, path, None, f"{text}: the topic is gone")
            else:
                self._report.damage(CONFIG, path, None, text)


def check_checkpoint(
    root: Path,
    found: Checkpoint,
    report: Report,
    *,
    log_end: int,
    last_ms: int,
    is_open: bool,
) -> None:
    """Check that the checkpoint, as read before the log, doesn't promise more than the log has."""
    path = root / CHECKPOINT
    part = report.part(CHECKPOINT, "numbers")
    if not path.exists():
        if log_end:
            report.note(CHECKPOINT, path, None, "is missing; a start looks at more of the log")
        return
    part.files = 1
    size = path.stat().st_size
    if size != checkpoints.FILE_BYTES:
        text = f"has {size} bytes instead of {checkpoints.FILE_BYTES}"
        report.damage(CHECKPOINT, path, None, text)
    crc_at = checkpoints.OWN.size
    own = path.read_bytes()[checkpoints.OWN_AT :][: crc_at + checkpoints.CRC.size]
    is_ours = own.startswith(checkpoints.OWN_MAGIC) and len(own) > crc_at
    if is_ours and checkpoints.CRC.unpack_from(own, crc_at) != (crc32(own[:crc_at]),):
        report.damage(CHECKPOINT, path, checkpoints.OWN_AT, "our own part has another crc")
    elif own.strip(b"\0") and not is_ours:
        report.damage(CHECKPOINT, path, checkpoints.OWN_AT, "our own part begins with no mark")
    times = {0: found.log_ms, 8: found.queues_ms, 16: found.index_ms}
    for at, moment in times.items():
        part.checked += 1
        if moment < 0 or moment > last_ms:
            text = f"says that what was stored until {moment} is safe; the last is of {last_ms}"
            # The times of queues and index are saved without waiting for the disk.
            tell = report.note if is_open and moment >= 0 and at else report.damage
            tell(CHECKPOINT, path, at, text)
    for at, place in {32: found.confirm_offset, checkpoints.OWN_AT + 48: found.synced_end}.items():
        part.checked += 1
        if place > log_end:
            text = f"says that the log is safe up to {place}; it ends at {log_end}"
            report.damage(CHECKPOINT, path, at, text)


def deleted_topics(root: Path) -> dict[str, int]:
    """The deleted topics and where the log ended then; none if the file can't be read."""
    deleted = Deleted(root)
    try:
        deleted.load()
    except StoreError:
        return {}  # reported as a file that can't be read
    return deleted.ends


def _table(text: Any, name: str) -> dict[Any, Any]:
    found = text.get(name) if isinstance(text, dict) else None
    return found if isinstance(found, dict) else {}
