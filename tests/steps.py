"""Work that comes in steps, done at once: for functions that give way to others between two."""

from collections.abc import Generator
from typing import Any


def result_of(steps: Generator[object, None, Any]) -> Any:
    """What the generator returns after its last step."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
