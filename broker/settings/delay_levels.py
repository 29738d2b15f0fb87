"""The setting messageDelayLevel: the waits of the delay levels, as one text."""

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> list[int]:
    """The waits of levels 1, 2, … in ms out of "1s 5s 2m"; ValueError naming a bad one."""
    found = []
    for word in text.split():
        number, unit = word[:-1], word[-1:].lower()
        if not number.isdigit() or unit not in UNITS_MS:
            raise ValueError(
                f"messageDelayLevel has {word!r}; write a number and s, m, h or d, such as 10s"
            )
        found.append(int(number) * UNITS_MS[unit])
    if not found:
        raise ValueError("messageDelayLevel is empty; name at least one wait, such as 1s")
    return found
