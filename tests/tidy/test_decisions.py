"""Each decision is listed; each class of RocketMQ leads to an existing file."""

import re

from . import tree

FOLDER = tree.ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("0*.md"))
CLASSES = (tree.ROOT / "docs" / "rocketmq-classes.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", CLASSES, re.MULTILINE)[2:]
CLASS_IN_FILE = re.compile(r"((?:`[A-Z]\w+`,? ?)+) ?in ((?:`[\w/]+\.py`(?:, )?)+)")


def test_decisions_are_listed() -> None:
    index = (FOLDER / "index.md").read_text()
    rows = re.findall(r"^\| \[(.+)\]\((.+)\) \| ([\d-]+) \|$", index, re.MULTILINE)
    wanted = []
    for path in DECISIONS:
        text = path.read_text()
        date = re.search(r"Date: ([\d-]+)", text)
        assert date
        wanted.append((text.splitlines()[0].removeprefix("# "), path.name, date[1]))
    assert rows == wanted


def test_each_class_of_rocketmq_leads_to_files_and_classes_of_ours() -> None:
    assert len(ROWS) > 40
    wrong: list[str] = []
    for theirs, ours in ROWS:
        files = re.findall(r"`([\w/]+\.py|[\w/]+/)`", ours)
        wrong += [theirs] if not files else []
        wrong += [f"{theirs}: {file}" for file in files if not (tree.ROOT / file).exists()]
        for classes, places in CLASS_IN_FILE.findall(ours):
            named = re.findall(r"`([\w/]+\.py)`", places)
            sources = "\n".join((tree.ROOT / file).read_text() for file in named)
            for name in re.findall(r"`(\w+)`", classes):
                if not re.search(rf"^class {name}\b", sources, re.MULTILINE):
                    wrong.append(f"{theirs}: class {name}")
    assert wrong == []
