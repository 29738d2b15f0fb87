"""The parts of the documents that are made from the code, and the programs in them.

    python -m aerobee.tools.generated            names what is behind
    python -m aerobee.tools.generated --write    writes it

A part stands between two marks; the rest of a document is left alone. Some files are made as a
whole. A block of code below a mark such as `<!-- examples/in_order.py -->` is that file. A test
checks that nothing is out of date, so a new room or a new request can't be forgotten.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import broker_defaults, definitions, openapi, rooms, served

ROOT = Path(__file__).resolve().parents[1]
# (document, mark) -> what makes the text.
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("ARCHITECTURE.md", "rooms"): rooms.table,
    ("ARCHITECTURE.md", "diagram"): rooms.folders_diagram,
    ("docs/rooms.md", "diagrams"): rooms.folder_pages,
    ("docs/requests.md", "served"): served.table,
}
FILES: dict[str, Callable[[], bytes]] = {
    "console/web/defaults/aerobee.json": broker_defaults.document,
    "docs/console-openapi.json": openapi.document,
    "proxy/definitions/messaging.desc": definitions.compiled,
}
PROGRAM = re.compile(
    r"(<!-- (examples/[\w./]+) -->\n```\w+\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or name the parts that are out of date; 1 if some stay so."""
    parser = argparse.ArgumentParser(description="The parts of documents made from the code.")
    parser.add_argument("--write", action="store_true", help="into the documents")
    options = parser.parse_args(argv)
    found = behind()
    for path, content in found.items():
        print(path.relative_to(ROOT))
        if options.write:
            path.write_bytes(content)
    return 1 if found and not options.write else 0


def behind() -> dict[Path, bytes]:
    """The files that differ from what is made for them, with what is made."""
    texts = {page: page.read_text() for page in (ROOT / "docs").rglob("*.md")}
    for (document, mark), part in PARTS.items():
        path = ROOT / document
        texts[path] = replaced(texts.get(path) or path.read_text(), mark, part())
    made = {path: with_programs(text).encode() for path, text in texts.items()}
    made |= {ROOT / name: content() for name, content in FILES.items()}
    return {path: content for path, content in made.items() if path.read_bytes() != content}


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
