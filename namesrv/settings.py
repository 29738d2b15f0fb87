"""The key-value config: texts by namespace and key, kept in a JSON file when one is named.

Every change is on the disk before it is answered. The file is written beside the old one and then
put in its place, so that one whole version is there whenever the power fails. The same text is in
`.bak`, which is read when the file is damaged.
"""

import logging
import os
import shutil
from pathlib import Path

from ..protocol import codes
from ..protocol.bodies.body import Body
from ..protocol.errors import Refusal

log = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
ITEMS_MAX = 100_000  # items of all namespaces together, one without any counts as one
ITEM_BYTES_MAX = 64 << 10  # namespace, key and value of one item
BYTES_MAX = 8 << 20  # keys and values of all items, and the namespaces: an answer may list them


class KVConfigFile(Body):
    """The file's content."""

    config_table: dict[str, dict[str, str]] = {}


class Settings:
    """The key-value config, in memory and in `path` (None: in memory only)."""

    def __init__(
        self,
        path: Path | None = None,
        items_max: int = ITEMS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Reads `path`, or else its `.bak`. ValueError when neither of two files can be read."""
        self._path = path
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._table: dict[str, dict[str, str]] = {} if path is None else _load(path)
        self._bytes = sum(
            _size(namespace) + sum(_size(key, value) for key, value in items.items())
            for namespace, items in self._table.items()
        )

    def get(self, namespace: str | None, key: str | None) -> str | None:
        """The value of a key, or None."""
        return None if namespace is None or key is None else self._items(namespace).get(key)

    def namespace(self, namespace: str | None) -> dict[str, str] | None:
        """All items of a namespace; None when there never was one."""
        found = None if namespace is None else self._table.get(namespace)
        return None if found is None else dict(found)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Refusal over a limit or when it can't be stored; nothing is changed then."""
        more = self._check_room(namespace, key, value)
        table = {name: dict(items) for name, items in self._table.items()}
        table.setdefault(namespace, {})[key] = value
        self._take(table)
        self._bytes += more

    def delete(self, namespace: str | None, key: str | None) -> None:
        """Remove a key, if it is there; its namespace stays. Refusal when it can't be stored."""
        if namespace is None or key is None or key not in self._items(namespace):
            return
        table = {name: dict(items) for name, items in self._table.items()}
        value = table[namespace].pop(key)
        self._take(table)
        self._bytes -= _size(key, value)

    def _items(self, namespace: str) -> dict[str, str]:
        return self._table.get(namespace, {})

    def _take(self, table: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            store(self._path, KVConfigFile(table).encode())
        self._table = table

    def _check_room(self, namespace: str, key: str, value: str) -> int:
        """The bytes by which the item increases the total size; Refusal over a limit."""
        size = _size(namespace, key, value)
        if size > ITEM_BYTES_MAX:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"config item {namespace[:80]}/{key[:80]} has {size} bytes, the limit is "
                f"{ITEM_BYTES_MAX}; store less in one item",
            )
        known = self._table.get(namespace)
        items = sum(max(1, len(each)) for each in self._table.values())
        if (known is None or (known and key not in known)) and items >= self._items_max:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"{items} config items are stored, the limit is {self._items_max}; delete some",
            )
        old = None if known is None else known.get(key)
        more = size - (0 if known is None else _size(namespace))
        more -= 0 if old is None else _size(key, old)
        if more > 0 and self._bytes + more > self._bytes_max:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"all config items have {self._bytes} bytes, with {namespace[:80]}/{key[:80]} it "
                f"would be {self._bytes + more}, the limit is {self._bytes_max}; delete some",
            )
        return more


def _size(*texts: str) -> int:
    """The bytes of these texts in the file."""
    return sum(len(text.encode()) for text in texts)


def store(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file and of its `.bak`. Refusal when it fails."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copyfile(temporary, _backup(path))
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as wrong:
        reason = wrong.strerror or str(wrong)
        raise Refusal(codes.SYSTEM_ERROR, f"{path.name} can't be stored: {reason}") from None


def _load(path: Path) -> dict[str, dict[str, str]]:
    faults: list[str] = []
    for candidate in (path, _backup(path)):
        try:
            data = candidate.read_bytes()
            if data.strip():
                found = KVConfigFile.decode(data).config_table
                if faults:
                    log.warning("%s; going on with %s", faults[0], candidate)
                return found
            faults.append(f"{candidate} is empty")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as wrong:
            faults.append(f"{candidate} can't be read: {wrong}")
    if faults:
        raise ValueError("; ".join(faults) + "; repair it or move it away")
    return {}


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
