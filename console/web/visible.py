"""Text from a cluster as a page shows it: what can't be seen, or turns the text around, is written
as an escape."""

import re

# C0 but tab and line feed, C1, marks of direction and joining, line separators, surrogates, BOM.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with each hidden character as `\\u202e`."""
    return _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
