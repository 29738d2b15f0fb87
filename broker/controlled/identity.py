"""The identity of a member of a broker name: files `brokerIdentity` and `brokerIdentity-temp`.

A broker keeps its id for life. It asks a controller for the next id, writes `brokerIdentity-temp`
with a check code, and applies for the id. If the answer is lost, it applies again with the same
code. Once the id is its own, it writes `brokerIdentity` and removes the other file.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...store.base.errors import DamagedStore, StoreError, readable_errors
from ...store.files import disk, json_file
from ...store.files.segment import make_folder, sync_folder

IDENTITY = "brokerIdentity"
APPLICATION = "brokerIdentity-temp"
SEPARATOR = "#"
FIRST_ID = 1


class Identity(NamedTuple):
    """Cluster, broker name and id (from 1 on). `check_code` is set only in an application."""

    cluster: str
    name: str
    broker_id: int
    check_code: str = ""

    def to_text(self) -> str:
        """The line of the file: `cluster#name#id`, or `cluster#name#id#checkCode`."""
        parts = [self.cluster, self.name, str(self.broker_id)]
        return SEPARATOR.join([*parts, self.check_code] if self.check_code else parts)


def parse(text: str, *, with_code: bool) -> Identity:
    """The identity in a file's line; ValueError when it is none."""
    parts = text.strip().split(SEPARATOR)
    wanted = 4 if with_code else 3
    if len(parts) != wanted or not all(parts):
        raise ValueError(
            f"{text[:80]!a} has {len(parts)} parts separated by {SEPARATOR}, not {wanted}"
        )
    number = parts[2]
    if not (number.isascii() and number.isdecimal() and FIRST_ID <= int(number) < 1 << 63):
        raise ValueError(f"{number[:40]!a} is no broker id; ids are numbers from {FIRST_ID} on")
    return Identity(parts[0], parts[1], int(number), parts[3] if with_code else "")


class IdentityFiles:
    """The two files of one store folder. `cluster` and `name` are those of the settings."""

    def __init__(self, folder: Path, cluster: str, name: str) -> None:
        self._folder = folder
        self._cluster = cluster
        self._name = name

    def load(self) -> Identity | None:
        """Return this broker's identity; None before its first application has succeeded.

        DamagedStore for a file that can't be read; StoreError for the identity of another broker.
        """
        return self._load(self._folder / IDENTITY, with_code=False)

    def load_application(self) -> Identity | None:
        """The application whose answer is not known; None without one. Errors as in `load`."""
        return self._load(self._folder / APPLICATION, with_code=True)

    def save_application(self, application: Identity) -> None:
        """Write down an application before it is sent. StoreError when that fails."""
        self._save(self._folder / APPLICATION, application)

    def drop_application(self) -> None:
        """Remove an application that was refused. StoreError when that fails."""
        with readable_errors(self._folder, "write in"):
            with suppress(FileNotFoundError):
                disk.current.unlink(self._folder / APPLICATION)
            sync_folder(self._folder)

    def accept(self, application: Identity) -> Identity:
        """Write down the identity that an application has got, and remove the application."""
        identity = application._replace(check_code="")
        self._save(self._folder / IDENTITY, identity)
        self.drop_application()
        return identity

    def _load(self, path: Path, *, with_code: bool) -> Identity | None:
        data = json_file.read(path)
        if data is None:
            return None
        try:
            found = parse(data.decode(), with_code=with_code)
        except ValueError as wrong:
            raise DamagedStore(
                f"{path} can't be read: {wrong}; bring it back from a backup, or remove the whole "
                "store folder, so that this broker joins as a new member"
            ) from None
        for what, here, wanted in (
            ("brokerClusterName", found.cluster, self._cluster),
            ("brokerName", found.name, self._name),
        ):
            if here != wanted:
                raise StoreError(
                    f"{path} belongs to {what}={here[:80]}, the settings say {what}={wanted}; "
                    "correct the setting, or give this broker a store folder of its own"
                )
        return found

    def _save(self, path: Path, identity: Identity) -> None:
        make_folder(self._folder, sync=True)
        json_file.replace(path, identity.to_text().encode())
        with readable_errors(self._folder, "write in"):
            sync_folder(self._folder)
