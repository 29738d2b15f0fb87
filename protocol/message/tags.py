"""Java's String.hashCode, which consume queues keep in the place of a message's tags."""

from .properties import find

TAG_HASHES_MAX = 100_000  # remembered tags


def string_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, 31·h + unit, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = 31 * found + (units[at] << 8 | units[at + 1]) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


class _TagHashes(dict[bytes | str, int]):
    """Tags (UTF-8 when bytes) to their code; one not met before is worked out and remembered."""

    def __missing__(self, tags: bytes | str) -> int:
        if len(self) >= TAG_HASHES_MAX:
            self.clear()
        text = tags if isinstance(tags, str) else tags.decode(errors="replace")
        found = self[tags] = string_hash(text)
        return found


# For the hot path, which spends no call on tags that came before. Empty tags have the code 0.
TAG_HASHES = _TagHashes({"": 0, b"": 0})


def tag_hash(tags: bytes | str | None) -> int:
    """The tags code of a message with these tags (UTF-8 when bytes); 0 without any."""
    return TAG_HASHES[tags] if tags else 0


def raw_tags_code(properties: bytes) -> int:
    """The tags code of a message with these properties."""
    tags = find(properties, b"TAGS")
    return TAG_HASHES[tags] if tags else 0
