"""What a look through a store comes to: findings with file and place, and a summary."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..files.listing import Problem

FINDINGS_KEPT = 1_000  # of one part; more are only counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `at` is the byte in the file, if one is meant.

    What is no damage is worth knowing: the next start deals with it, or it was so intended.
    """

    part: str
    path: Path
    at: int | None
    text: str
    is_damage: bool

    @property
    def line(self) -> str:
        """One line for a person."""
        place = str(self.path) if self.at is None else f"{self.path}:{self.at}"
        return f"{'damage' if self.is_damage else 'note'}: {place}: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """The same for a program."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(slots=True)
class Part:
    """A row of the summary: files and things in them that were looked at, and what was wrong."""

    name: str
    what: str
    files: int = 0
    checked: int = 0
    damaged: int = 0
    notes: int = 0


@dataclass(slots=True)
class Report:
    """All that was found. `findings` has the first of each part, `parts` counts all."""

    root: Path
    parts: dict[str, Part] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """Whether anything was found that should not be."""
        return any(part.damaged for part in self.parts.values())

    def part(self, name: str, what: str) -> Part:
        """The row of this name, whose things are called `what`."""
        return self.parts.setdefault(name, Part(name, what))

    def damage(self, part: str, path: Path, at: int | None, text: str) -> None:
        """Something is not as it should be."""
        self.parts[part].damaged += 1
        self._keep(Finding(part, path, at, text, True), self.parts[part].damaged)

    def note(self, part: str, path: Path, at: int | None, text: str) -> None:
        """Something is worth knowing."""
        self.parts[part].notes += 1
        self._keep(Finding(part, path, at, text, False), self.parts[part].notes)

    def tell(self, part: str, problem: Problem) -> None:
        """Something is wrong with a file, or it is not the store's."""
        say = self.note if problem.is_stray else self.damage
        say(part, problem.path, problem.at, problem.text)

    def _keep(self, finding: Finding, number: int) -> None:
        if number <= FINDINGS_KEPT:
            self.findings.append(finding)
