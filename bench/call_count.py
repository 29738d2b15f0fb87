"""Runs an aerobee command while counting the Python-level calls that its main thread makes.

SIGUSR1 starts the count, SIGUSR2 ends it and prints one JSON line: all calls and those of each
function. Counted calls don't jitter as times do: they are what a SEND costs, in a number that two
machines agree on.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from types import CodeType, FrameType

SHOWN_MAX = 40


def main(argv: list[str] | None = None) -> int:
    """Runs `aerobee ARGV` under the counter; its exit code."""
    from ..scripts.cli import main as aerobee

    counts: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            counts[frame.f_code] += 1

    def begin(*_: object) -> None:
        counts.clear()
        sys.setprofile(count)

    def end(*_: object) -> None:
        sys.setprofile(None)
        counts.pop(end.__code__, None)
        shown = {code.co_qualname: number for code, number in counts.most_common(SHOWN_MAX)}
        print(json.dumps({"calls": counts.total(), "by": shown}), flush=True)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    return aerobee(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
