"""A backup's list of files, and the pieces that they are made of.

Below a target, `backups/` has a list for each backup and `pieces/` has the bytes: each piece is
named by its hash, so what two backups have in common is there once. The name of a list has the hash
of its text.
"""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from ..base.errors import DamagedStore, StoreError
from .targets import Target

PIECE_BYTES = 16 << 20
LISTS, PIECES = "backups", "pieces"
FORMAT = 1
HASH_DIGITS = 16  # of the text of a list, in its name


@dataclass(frozen=True, slots=True)
class Piece:
    """The data of up to `PIECE_BYTES` of a file, without the zeros at its end. `hash` is sha256 in
    hex; a piece of zeros has size 0 and no hash."""

    hash: str
    size: int

    @property
    def name(self) -> str:
        """The name of the piece in a target."""
        return f"{PIECES}/{self.hash[:2]}/{self.hash}"


ZEROS = Piece("", 0)


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A file of the store: `path` relative to the store, sizes in bytes. `stamp` is inode and time
    of the last write if the file was full, else empty: such a file need not be read again."""

    path: str
    size: int
    pieces: list[Piece]
    stamp: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup: when it was begun and when all was read, in ms, and the store's files."""

    store: str
    begun_ms: int
    done_ms: int
    version: str
    files: list[BackedUp]
    format: int = FORMAT

    @property
    def data_bytes(self) -> int:
        """The bytes of all pieces, each counted as often as it is named."""
        return sum(piece.size for file in self.files for piece in file.pieces)

    def encode(self) -> tuple[str, bytes]:
        """The name of the list in a target, and its text."""
        text = json.dumps(asdict(self), separators=(",", ":")).encode()
        moment = datetime.fromtimestamp(self.done_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
        label = f"{moment}.{self.done_ms % 1000:03d}Z-{sha256(text).hexdigest()[:HASH_DIGITS]}"
        return f"{LISTS}/{label}.json", text


def names(target: Target) -> list[str]:
    """The names of the lists in a target, the oldest first."""
    return sorted(name for name in target.sizes(LISTS) if name.endswith(".json") and "Z-" in name)


def existing(target: Target) -> list[str]:
    """The same where there must be one. StoreError, with the reason, without one."""
    found = names(target)
    if not found:
        why = target.lack() or f"nothing below {target.place(LISTS)} is the list of one"
        raise StoreError(
            f"{target.place('')} has no backup: {why}; give the TARGET that `aerobee backup` wrote "
            "to, or take a backup first"
        )
    return found


def label(name: str) -> str:
    """The time and hash in a list's name, which tell lists apart."""
    return name.removeprefix(f"{LISTS}/").removesuffix(".json")


def named(found: list[str], part: str | None) -> str:
    """The newest of these lists, or the one whose name has `part`. StoreError without one."""
    if part is None:
        return found[-1]
    fitting = [each for each in found if part in each]
    if len(fitting) != 1:
        raise StoreError(f"{len(fitting)} backups have {part} in their name; --list shows all")
    return fitting[0]


def load(target: Target, name: str) -> Backup:
    """The backup of this name. DamagedStore when its list is missing or not what was written."""
    text = target.read(name)
    if text is None:
        raise DamagedStore(f"there is no backup {target.place(name)}; --list shows all")
    if not name.endswith(f"-{sha256(text).hexdigest()[:HASH_DIGITS]}.json"):
        raise DamagedStore(
            f"{target.place(name)} is damaged: its hash is another one; choose another backup with "
            "--backup, or bring the file back"
        )
    found = json.loads(text)
    if found["format"] != FORMAT:
        raise StoreError(
            f"{target.place(name)} has format {found['format']}, this version reads {FORMAT}; use "
            f"aerobee {found['version']} or newer"
        )
    files = [
        BackedUp(
            each["path"], each["size"], [Piece(**one) for one in each["pieces"]], each["stamp"]
        )
        for each in found["files"]
    ]
    return Backup(found["store"], found["begun_ms"], found["done_ms"], found["version"], files)


def data_of(target: Target, file: BackedUp, piece: Piece) -> bytes:
    """The bytes of a piece. DamagedStore, with the place and the file, when they are missing or
    others than were written."""
    data = target.read(piece.name)
    if data is not None and sha256(data).hexdigest() == piece.hash:
        return data
    wrong = "is missing" if data is None else f"is damaged ({len(data)} bytes, another hash)"
    raise DamagedStore(
        f"{target.place(piece.name)} {wrong}; it is a part of {file.path}; choose another backup "
        "with --backup, or bring the file back"
    )
