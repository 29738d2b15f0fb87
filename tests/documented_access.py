"""What docs/requests.md says that requests need, for tests that compare it with servers."""

from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "requests.md"
ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")

Clause = tuple[str, tuple[str, ...]]


def documented(daemon: str) -> dict[int, list[Clause] | None]:
    """Kinds of resources with the actions of which each needs one, by code; None: no signature."""
    found: dict[int, list[Clause] | None] = {}
    for line in DOCUMENT.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].isdecimal() and cells[2] == daemon:
            text = cells[5].partition(";")[0]
            clauses = [] if text in ("any user", "anyone") else text.split(" and ")
            parts = [clause.partition(" ") for clause in clauses]
            wanted = [(kind, tuple(actions.split(" or "))) for kind, _, actions in parts]
            found[int(cells[0])] = None if text == "anyone" else wanted
    return found
