"""Whole numbers as values of options."""

import argparse
from collections.abc import Callable
from math import inf


def whole(what: str, least: int = 0, most: float = inf) -> Callable[[str], int]:
    """A type for argparse: decimal digits, within the limits; `what` tells about any other text."""

    def read(text: str) -> int:
        if not (text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} {what}")
        return int(text)

    return read


PORT_MAX = 65_535
PORT = whole(f"is not a port, a number from 0 to {PORT_MAX}", most=PORT_MAX)
