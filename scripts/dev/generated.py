"""The parts of the documents that are made from the code.

    python -m aerobee.scripts.dev.generated            prints all parts
    python -m aerobee.scripts.dev.generated --write    writes them into the documents

A part stands between two marks; the rest of a document is left alone. Some files are made as a
whole. A test compares each with what is made here, so a new room or a new request can't be
forgotten.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import openapi, requirements, rooms, served

ROOT = Path(__file__).resolve().parents[2]
# (document, mark) -> what makes the text.
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("ARCHITECTURE.md", "rooms"): rooms.table,
    ("ARCHITECTURE.md", "diagram"): rooms.folders_diagram,
    ("docs/rooms.md", "diagrams"): rooms.folder_pages,
    ("docs/requests.md", "served"): served.table,
    ("docs/requirements.md", "requirements"): requirements.table,
}
FILES: dict[str, Callable[[], str]] = {"docs/console-openapi.json": openapi.document}


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write all parts."""
    parser = argparse.ArgumentParser(description="The parts of documents made from the code.")
    parser.add_argument("--write", action="store_true", help="into the documents")
    options = parser.parse_args(argv)
    for (document, mark), made in PARTS.items():
        if options.write:
            path = ROOT / document
            path.write_text(replaced(path.read_text(), mark, made()))
        else:
            print(f"{document}, {mark}:\n\n{made()}")
    for name, made in FILES.items():
        if options.write:
            (ROOT / name).write_text(made())
        else:
            print(f"{name}:\n\n{made()}")
    return 0


def replaced(document: str, mark: str, text: str) -> str:
    """The document with this text between its marks; ValueError if it doesn't have them."""
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, found, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the document has no {begin.strip()} and {end} to put the text between")
    return f"{before}{begin}{text}{end}{after}"


if __name__ == "__main__":
    sys.exit(main())
