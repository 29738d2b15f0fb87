"""SQL92 expressions in compiled form by their texts: least recently used ones are dropped.

A compiled expression takes up to 200 bytes of memory for each of its characters. So both the number
of expressions and the sum of their lengths have a limit.
"""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from ...protocol.filters.sql92 import Predicate, predicate

KEPT_MAX = 1_024  # expressions in compiled form
KEPT_CHARS_MAX = 256 << 10  # of all of them: compiled, about 50 MB at worst

T = TypeVar("T")


class ExpressionCache(Generic[T]):
    """Compiles a text with `make` on its first use, and keeps the result within the limits."""

    def __init__(self, make: Callable[[str], T], count_max: int, chars_max: int) -> None:
        self._make = make
        self._count_max = count_max
        self._chars_max = chars_max
        self._values: OrderedDict[str, T] = OrderedDict()  # least recently used first
        self._lock = Lock()  # a process may have several brokers, each in its thread
        self.chars = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, text: str) -> T:
        """The value of a text; what `make` raises."""
        with self._lock:
            found = self._values.get(text)
            if found is not None:
                self._values.move_to_end(text)
                return found
        made = self._make(text)
        with self._lock:
            if text not in self._values:
                self.chars += len(text)
            self._values[text] = made
            while len(self._values) > self._count_max or self.chars > self._chars_max:
                dropped, _ = self._values.popitem(last=False)
                self.chars -= len(dropped)
        return made


def compiled(text: str) -> Predicate:
    """The predicate that an expression stands for; SqlError naming the place of a fault."""
    return _kept.get(text)


_kept = ExpressionCache(predicate, KEPT_MAX, KEPT_CHARS_MAX)
