"""The report of `check`: findings with file and byte, and a summary."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..files.listing import Problem

FINDINGS_KEPT = 1_000  # of one part; more are only counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `at` is the byte in the file, if there is one.

    A finding that is no damage is a note: the next start deals with it, or it is intended.
    """

    part: str
    path: Path
    at: int | None
    text: str
    is_damage: bool

    @property
    def line(self) -> str:
        """The finding as one line of text."""
        place = str(self.path) if self.at is None else f"{self.path}:{self.at}"
        return f"{'damage' if self.is_damage else 'note'}: {place}: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """The finding as values for JSON."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(slots=True)
class Part:
    """A row of the summary: the numbers of files, of items (`what`) checked in them, and of
    findings."""

    name: str
    what: str
    files: int = 0
    checked: int = 0
    damaged: int = 0
    notes: int = 0


@dataclass(slots=True)
class Report:
    """All findings. `findings` has the first `FINDINGS_KEPT` of each part and kind, `parts` counts
    all."""

    root: Path
    parts: dict[str, Part] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """True if any damage was found."""
        return any(part.damaged for part in self.parts.values())

    def part(self, name: str, what: str) -> Part:
        """The row of this name, made if needed; its items are called `what`."""
        return self.parts.setdefault(name, Part(name, what))

    def damage(self, part: str, path: Path, at: int | None, text: str) -> None:
        """Add damage. `at` is the byte in the file, or None."""
        self.parts[part].damaged += 1
        self._keep(Finding(part, path, at, text, True), self.parts[part].damaged)

    def note(self, part: str, path: Path, at: int | None, text: str) -> None:
        """Add a note. `at` is the byte in the file, or None."""
        self.parts[part].notes += 1
        self._keep(Finding(part, path, at, text, False), self.parts[part].notes)

    def tell(self, part: str, problem: Problem) -> None:
        """Add a problem: a note if the file is not the store's, else damage."""
        say = self.note if problem.is_stray else self.damage
        say(part, problem.path, problem.at, problem.text)

    def _keep(self, finding: Finding, number: int) -> None:
        if number <= FINDINGS_KEPT:
            self.findings.append(finding)
