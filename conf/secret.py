"""Secrets in settings: given as a text, or as file:PATH, which only its owner may read.

A secret is never shown: no error message contains one.
"""

import functools
from pathlib import Path

from ..protocol.security.secret_mode import fault_of
from .sources import ConfigError

FILE = "file:"
CHARS_MIN, CHARS_MAX = 16, 1_024
HIDDEN = "******"  # shown in the place of a secret


def secret_of(key: str, text: str) -> bytes:
    """The secret that a setting gives, empty for an empty setting.

    A process reads a file once. ConfigError for a file that others can read, and for a secret that
    is too short, too long, or has other than printable ASCII characters.
    """
    if not text:
        return b""
    found = _from_file(key, Path(text.removeprefix(FILE))) if text.startswith(FILE) else text
    if not CHARS_MIN <= len(found) <= CHARS_MAX:
        raise ConfigError(
            f"{key} has {len(found)} characters, but must have {CHARS_MIN} to {CHARS_MAX}; make "
            "one with: openssl rand -hex 32 (its value is not shown here)"
        )
    if not (found.isascii() and found.isprintable()) or " " in found:
        raise ConfigError(
            f"{key} has spaces or characters that are not printable ASCII; make one with: openssl "
            "rand -hex 32 (its value is not shown here)"
        )
    return found.encode()


def check_mode(key: str, path: Path) -> None:
    """ConfigError for a file that is missing, or that others than its owner and group can read."""
    try:
        why = fault_of(str(path), path.stat().st_mode)
    except OSError as wrong:
        raise ConfigError(
            f"{key}: {path} can't be read: {wrong.strerror or wrong}; correct the path"
        ) from None
    if why:
        raise ConfigError(f"{key}: {why}")


@functools.cache
def _from_file(key: str, path: Path) -> str:
    """The text of a file. A process reads it once: a change of other settings, or of a broker's
    role, can't fail because the file has gone since."""
    path = path.expanduser()
    check_mode(key, path)
    try:
        with path.open("rb") as file:
            data = file.read(CHARS_MAX + 3)  # with the end of its line
        return data.decode("ascii").rstrip("\r\n")
    except (OSError, ValueError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is not ASCII"
        raise ConfigError(f"{key}: {path} can't be read: {reason}; correct it") from None
