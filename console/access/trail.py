"""What the audit says of each action: its two lines as one act, with its ending in one word."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    """The end of an action. OPEN: it runs, or was cut off; there is no second line."""

    DONE = "done"
    PARTLY = "partly done"
    REFUSED = "refused"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Act:
    """An action. Times are ms since 1970; `address` is where the visitor came from, `result` what
    the second line has."""

    at_ms: int | None
    ended_ms: int | None
    visitor: str
    address: str
    cluster: str
    action: str
    target: str
    details: Mapping[str, Any]
    ending: Ending
    result: Any


def acts(lines: Iterable[Mapping[str, Any]]) -> list[Act]:
    """The actions of lines, newest first in both. A second line whose first one is not among them
    is left out."""
    ends: dict[Any, Mapping[str, Any]] = {}
    found = []
    for line in lines:
        entry = str(line.get("entry"))
        if line.get("step") == "end":
            ends[entry] = line
        elif line.get("step") == "begin":
            found.append(_act(line, ends.get(entry)))
    return found


def _act(begin: Mapping[str, Any], end: Mapping[str, Any] | None) -> Act:
    details = begin.get("details")
    return Act(
        _ms(begin.get("at")),
        None if end is None else _ms(end.get("at")),
        str(begin.get("visitor", "")),
        str(begin.get("from", "")),
        str(begin.get("cluster", "")),
        str(begin.get("action", "")),
        str(begin.get("target", "")),
        details if isinstance(details, dict) else {},
        Ending.OPEN if end is None else ending(end.get("result")),
        None if end is None else end.get("result"),
    )


def ending(result: Any) -> Ending:
    """The word for a result."""
    if not isinstance(result, dict):
        return Ending.DONE
    if "not done" in result:
        return Ending.NOT_DONE
    if result.get("not whole"):
        return Ending.PARTLY
    counts = result.get("counts", result)
    pairs = counts.items() if isinstance(counts, dict) else ()
    numbers = {key: n for key, n in pairs if isinstance(n, int)}
    if numbers.get("unknown"):
        return Ending.UNKNOWN
    is_cut = result.get("phase") in ("stopped", "running") or bool(result.get("why"))
    if not is_cut and not numbers.get("refused") and not numbers.get("not tried"):
        return Ending.DONE
    is_begun = any(numbers.get(key) for key in ("done", "sent", "skipped"))
    return Ending.PARTLY if is_begun else Ending.REFUSED


def _ms(text: Any) -> int | None:
    """The ms of a time of the audit; None for what is none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except (TypeError, ValueError, OverflowError):
        return None
