"""Each decision is whole, numbered and listed; each class of RocketMQ leads to an existing file."""

import re
from pathlib import Path

import pytest

from . import tree

FOLDER = tree.ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("0*.md"))
HEADINGS = ["Context", "Decision", "Price", "What would change it"]
CLASSES = (tree.ROOT / "docs" / "rocketmq-classes.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", CLASSES, re.MULTILINE)[2:]
CLASS_IN_FILE = re.compile(r"((?:`[A-Z]\w+`,? ?)+) ?in ((?:`[\w/]+\.py`(?:, )?)+)")


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_dated_and_has_its_four_parts(decision: Path) -> None:
    text = decision.read_text()
    title = re.match(r"# (\d+)\. (.+)\n\nDate: \d{4}-\d\d-\d\d\. Status: \w", text)
    assert title, "begin with: # NUMBER. TITLE, then: Date: YYYY-MM-DD. Status: accepted."
    assert int(title[1]) == int(decision.name[:4])
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(part.strip() for part in parts)


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert numbers == list(range(1, len(numbers) + 1))
    index = (FOLDER / "index.md").read_text()
    rows = re.findall(r"^\| \[(.+)\]\((.+)\) \| ([\d-]+) \|$", index, re.MULTILINE)
    wanted = []
    for path in DECISIONS:
        text = path.read_text()
        date = re.search(r"Date: ([\d-]+)", text)
        assert date
        wanted.append((text.splitlines()[0].removeprefix("# "), path.name, date[1]))
    assert rows == wanted


def test_the_table_of_rocketmqs_classes_is_read() -> None:
    assert len(ROWS) > 40


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_a_class_of_rocketmq_leads_to_files_and_classes_of_ours(theirs: str, ours: str) -> None:
    files = re.findall(r"`([\w/]+\.py|[\w/]+/)`", ours)
    assert files, f"name the file that does what {theirs} does"
    assert [file for file in files if not (tree.ROOT / file).exists()] == []
    for classes, places in CLASS_IN_FILE.findall(ours):
        sources = [(tree.ROOT / file).read_text() for file in re.findall(r"`([\w/]+\.py)`", places)]
        for name in re.findall(r"`(\w+)`", classes):
            assert any(re.search(rf"^class {name}\b", source, re.MULTILINE) for source in sources)
