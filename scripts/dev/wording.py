"""Words that docstrings, comments, documents and names don't use, each with its cure.

    python -m aerobee.scripts.dev.wording FILE...     prints what is found in these files

Code in backquotes and in blocks of a document is passed over.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    *("protocol", "store", "namesrv", "broker", "client", "spark", "console", "conf", "testing"),
    *("controller", "proxy", "scripts", "examples", "tests", "docs"),
)
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


class Word(NamedTuple):
    """A pattern that prose doesn't have, and what to write in its place."""

    pattern: str
    cure: str


class Finding(NamedTuple):
    """One use of a word in a file."""

    line: int
    text: str
    cure: str


PROSE = [
    Word(r"who(?:ever|m)?", "name the subject: the client, the caller, the reader"),
    Word(r"he|him|his|she|her", "software is it; or name the subject"),
    Word(r"anew", "again, or a verb: rebuild, recreate"),
    Word(
        r"(?:no|some|every|any)body",
        "name the subject: no client, another process, each member, any peer",
    ),
    Word(r"of (?:ours|theirs)", "aerobee's; or name the owner"),
    Word(r"in circles", "say what is repeated"),
    Word(r"so many", "the number, or: this many, as many as"),
    Word(r"what is owed|ow(?:e|es|ed|ing)", "unsent bytes, pending responses"),
    Word(r"those (?:that|who)", "repeat the noun"),
    Word(r"(?:the )?common way|the (?:quick|long) way", "slow path, fast path"),
    Word(r"lanes?", "fast path"),
    Word(r"crowds?", "epoll reader; many connections"),
    Word(
        r"(?:the|a|an|each|every|this|that|one|loop|next|other|its|per) turns?(?! on| off)",
        "loop iteration, tick",
    ),
    Word(r"a share|shares of", "quantum; part"),
    Word(r"doors?", "endpoint, port, interface"),
    Word(r"hot keys?", "dynamic settings"),
    Word(r"agreements?", "subscription check"),
    Word(r"narrow(?:s|ed|er|ing)?", "filter pushdown; filter, restrict"),
    Word(r"held (?:pull|pop|poll|request)s?", "parked"),
    Word(r"kin", "name the others"),
    Word(r"the half of|half of the store", "name the part"),
    Word(r"greedy", "heavy sender"),
    Word(r"answered? (?:him|them)", "responds to the client"),
]
# In identifiers, whose parts count as words: `join_crowd`, `LaneFull`.
NAMES = [
    Word(r"lanes?|laned", "fast path, batch"),
    Word(r"crowds?", "epoll reader, poller"),
    Word(r"owe|owed|owes", "unsent"),
    Word(r"doors?", "endpoint"),
    Word(r"agreement", "subscription check"),
    Word(r"narrow", "pushdown"),
    Word(r"anew", "rebuild, again"),
    Word(r"(?<!in )turn", "tick, iteration, scheduler"),
]
GAP = r"[\s#]+"  # between two words of a phrase: a space, or the start of the next comment line
IN_PROSE = [
    (re.compile(rf"\b(?:{word.pattern.replace(' ', GAP)})\b", re.IGNORECASE), word)
    for word in PROSE
]
IN_NAMES = [(re.compile(rf"\b(?:{word.pattern})\b", re.IGNORECASE), word) for word in NAMES]
# Any of them at all; with none a file need not be taken apart.
ANY = re.compile(
    "|".join(
        [pattern.pattern for pattern, _ in IN_PROSE]
        + [rf"(?-i:(?<![a-z]))(?:{word.pattern})(?-i:(?![a-z]))" for word in NAMES]
    ),
    re.IGNORECASE,
)
CODE = re.compile(r"``.*?``|`[^`\n]*`")
FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def main(argv: Sequence[str] | None = None) -> int:
    """Print findings."""
    names = sys.argv[1:] if argv is None else argv
    found = [(file, finding) for file in names for finding in findings(Path(file))]
    for file, finding in found:
        print(f"{file}:{finding.line}: {finding.text!r}: {finding.cure}")
    return 1 if found else 0


def files() -> list[str]:
    """Every file that is looked at, by its path below the root."""
    found = [ROOT / name for name in DOCUMENTS if (ROOT / name).exists()]
    for folder in FOLDERS:
        for suffix in ("py", "md", "yaml"):
            found += (ROOT / folder).rglob(f"*.{suffix}")
    names = (str(path.relative_to(ROOT)) for path in found)
    return sorted(
        name for name in names if not name.startswith(("docs/reference/", "tests/golden/"))
    )


def findings(path: Path) -> list[Finding]:
    """The words of the lists that a file has, in its order."""
    text = path.read_text()
    if path.suffix == ".py":
        return sorted(_in_python(text)) if ANY.search(text) else []
    if path.suffix == ".md":
        text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
        return list(_in_prose(1, text))
    comments = (line if line.startswith("#") else "" for line in text.splitlines())
    return list(_in_prose(1, "\n".join(comments)))


def _in_prose(first: int, text: str) -> Iterator[Finding]:
    """Findings in a text; a phrase may go on in the next line, also of a comment."""
    plain = CODE.sub(lambda code: "`" + "\n" * code[0].count("\n"), text)
    for pattern, word in IN_PROSE:
        for found in pattern.finditer(plain):
            text_found = re.sub(r"[\s#]+", " ", found[0])
            yield Finding(first + plain[: found.start()].count("\n"), text_found, word.cure)


def _in_python(text: str) -> Iterator[Finding]:
    """Findings in the docstrings, comments and names of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                yield from _in_prose(node.body[0].lineno, docstring)
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            spaced = " ".join(NAME_PART.findall(token.string))
            for pattern, word in IN_NAMES:
                if pattern.search(spaced):
                    yield Finding(token.start[0], token.string, word.cure)
        elif token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield from _in_prose(last - len(block) + 1, "\n".join(block))
                block = []
            block.append(token.string)
            last = token.start[0]
    yield from _in_prose(last - len(block) + 1, "\n".join(block))


if __name__ == "__main__":
    sys.exit(main())
