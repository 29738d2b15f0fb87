"""Java's String.hashCode, which consume queues keep in the place of a message's tags."""

TAG_HASHES_MAX = 100_000  # remembered tags

_known: dict[bytes | str, int] = {}


def string_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, 31·h + unit, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = 31 * found + (units[at] << 8 | units[at + 1]) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def tag_hash(tags: bytes | str | None) -> int:
    """The tags code of a message with these tags (UTF-8 when bytes); 0 without any."""
    if not tags:
        return 0
    found = _known.get(tags)
    if found is None:
        if len(_known) >= TAG_HASHES_MAX:
            _known.clear()
        text = tags if isinstance(tags, str) else tags.decode(errors="replace")
        found = _known[tags] = string_hash(text)
    return found
