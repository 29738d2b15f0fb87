"""The file of a redrive: one JSON line before each send, and one with what became of it.

A run that is killed leaves lines, the last one perhaps torn. A letter with a line before its send
and none after is open: it may have been sent. The first line says what the file is about.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..texts import Text

BYTES_MAX = 64 << 20
SENDING, SENT, REFUSED, UNKNOWN = "sending", "sent", "refused", "unknown"
FORMAT = "aerobee redrive 1"


class LedgerFull(Exception):
    """The file has no room for another run."""


class Ledger:
    """The state of each dead letter of a group, by the letter's offset id, in a file."""

    def __init__(self, folder: Path, cluster: str, group: str, target: str) -> None:
        self.about = {"format": FORMAT, "cluster": cluster, "group": group, "target": target}
        # No name becomes a path.
        digest = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()
        self.path = folder / f"redrive-{digest[:24]}.jsonl"
        self.states: dict[str, str] = {}
        self._file: int | None = None

    def read(self) -> None:
        """Take over what earlier runs wrote."""
        self.states.clear()
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                row = json.loads(line)
                letter, state = row["letter"], row["state"]
            except (ValueError, TypeError, KeyError):
                continue  # the first line, or one that a kill has torn: its send did not begin
            self.states[letter] = state

    def open(self) -> None:
        """Begin to append; LedgerFull when the file is at its limit."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        size = os.fstat(self._file).st_size
        if size >= BYTES_MAX:
            self.close()
            raise LedgerFull(
                Text(
                    "%(path)s has %(size)s bytes, the limit is %(limit)s; move it away: a letter "
                    "without its line is looked for by its key",
                    path=self.path,
                    size=f"{size:,}",
                    limit=f"{BYTES_MAX:,}",
                )
            )
        if size == 0:
            self._append(self.about)
        elif os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def write(self, letter: str, state: str, **more: Any) -> None:
        """Append a line. It outlives the process at once, and the machine from `close` on."""
        self._append({"letter": letter, "state": state, **more})
        self.states[letter] = state

    def close(self) -> None:
        """Put the lines on the disk."""
        file, self._file = self._file, None
        if file is not None:
            os.fsync(file)
            os.close(file)

    def _append(self, row: dict[str, Any]) -> None:
        if self._file is None:
            raise ValueError("the ledger is not open")
        os.write(self._file, json.dumps(row).encode() + b"\n")
