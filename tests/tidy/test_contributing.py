"""The worked example of CONTRIBUTING.md is the code as it stands."""

import re
from textwrap import dedent

from . import tree


def test_each_step_shows_what_stands_in_the_file_it_names() -> None:
    text = (tree.ROOT / "CONTRIBUTING.md").read_text()
    blocks = [
        (re.findall(r"`([\w/]+\.py)`", before)[-1], code)
        for before, code in zip(*[iter(re.split(r"```(?:python\n)?", text)[:-1])] * 2, strict=True)
    ]
    assert len(blocks) == 4
    for file, code in blocks:
        lines = [line.strip().rstrip(",") for line in code.splitlines()]
        source = [line.strip().rstrip(",") for line in (tree.ROOT / file).read_text().splitlines()]
        starts = range(len(source) - len(lines) + 1)
        found = any(source[at : at + len(lines)] == lines for at in starts)
        assert found, f"{file} does not say:\n{dedent(code)}"
