"""The parts of the documents that are made from the code, and the programs in them.

    python -m aerobee.tools.generated            prints all parts
    python -m aerobee.tools.generated --write    writes them into the documents

A part stands between two marks; the rest of a document is left alone. Some files are made as a
whole. A block of code below a mark such as `<!-- examples/in_order.py -->` is that file. A test
compares each with what is made here, so a new room or a new request can't be forgotten.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import openapi, rooms, served

ROOT = Path(__file__).resolve().parents[1]
# (document, mark) -> what makes the text.
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("ARCHITECTURE.md", "rooms"): rooms.table,
    ("ARCHITECTURE.md", "diagram"): rooms.folders_diagram,
    ("docs/rooms.md", "diagrams"): rooms.folder_pages,
    ("docs/requests.md", "served"): served.table,
}
FILES: dict[str, Callable[[], str]] = {"docs/console-openapi.json": openapi.document}
PROGRAM = re.compile(
    r"(<!-- (examples/[\w./]+) -->\n```\w+\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)


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
    if options.write:
        for page in (ROOT / "docs").rglob("*.md"):
            page.write_text(with_programs(page.read_text()))
    return 0


def with_programs(document: str) -> str:
    """The document with the programs of examples/ as they are now; OSError for one that is gone."""
    return PROGRAM.sub(lambda found: found[1] + (ROOT / found[2]).read_text(), document)


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
