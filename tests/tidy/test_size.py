"""Functions are short and plain, and each module has a test. The exceptions are listed here.

The lists only shrink: an entry that is not needed any more fails a test.
"""

import ast
import re
import subprocess
import sys

from . import tree

LINES_MAX = 69  # of a function, with its signature and docstring
MODULE_LINES_MIN = 60  # from which on a module needs a test file of its name

# Functions that are longer, each with its reason.
TOO_LONG = {
    "protocol/kernels/plain_reading.py:read_sends": "one loop with the state of two scans",
}
# Functions that ruff's C901 finds too complex (pyproject.toml has the limit), each with its reason.
TOO_COMPLEX = {
    "protocol/kernels/plain_reading.py:_fields": "a compiled loop, whose calls cost",
    "protocol/kernels/plain_reading.py:read_sends": "one loop with the state of two scans",
}
RUFF_LINE = re.compile(r"^(.+?):\d+:\d+: C901 `(\w+)` (.+)$", re.MULTILINE)
ELSEWHERE = tree.ROOT / "tests" / "tidy" / "tested_elsewhere.txt"


def long_functions() -> dict[str, int]:
    """The functions that are too long, as "file:name", with their lines."""
    found = {}
    for path in tree.sources():
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > LINES_MAX:
                    found[f"{path}:{node.name}"] = lines
    return found


def complex_functions() -> dict[str, str]:
    """The functions that ruff finds too complex, as "file:name", with what it says."""
    said = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "C901", "--output-format", "concise"],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return {f"{file}:{name}": text for file, name, text in re.findall(RUFF_LINE, said)}


def named_elsewhere() -> dict[str, str]:
    """Module -> its test file, or "none: REASON"."""
    lines = ELSEWHERE.read_text().splitlines()
    found = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))
    assert list(found) == sorted(found), f"sort {ELSEWHERE.name}"
    return found


def without_a_test_of_their_name() -> set[str]:
    """The modules that are long enough to need a test and have none of their name."""
    return {
        str(path)
        for path in tree.sources()
        if path.name != "__init__.py"
        and len((tree.ROOT / path).read_text().splitlines()) >= MODULE_LINES_MIN
        and not (tree.ROOT / "tests" / path.parent / f"test_{path.name}").exists()
    }


def test_functions_are_shorter_than_seventy_lines() -> None:
    found = long_functions()
    wrong = {name: lines for name, lines in found.items() if name not in TOO_LONG}
    assert not wrong, f"split these, a function has at most {LINES_MAX} lines: {wrong}"
    short = TOO_LONG.keys() - found
    assert not short, f"these are short now, take them off TOO_LONG: {short}"


def test_functions_are_not_too_complex() -> None:
    found = complex_functions()
    wrong = {name: said for name, said in found.items() if name not in TOO_COMPLEX}
    assert not wrong, f"split these: {wrong}"
    plain = TOO_COMPLEX.keys() - found
    assert not plain, f"these are plain now, take them off TOO_COMPLEX: {plain}"


def test_each_module_has_a_test_of_its_name_or_a_line_that_says_where() -> None:
    lacking = sorted(without_a_test_of_their_name() - named_elsewhere().keys())
    assert not lacking, (
        f"write tests/FOLDER/test_NAME.py for {lacking}, or say in {ELSEWHERE.name} what tests them"
    )


def test_each_line_that_says_where_a_module_is_tested_is_needed_and_right() -> None:
    listed = named_elsewhere()
    needless = sorted(listed.keys() - without_a_test_of_their_name())
    assert not needless, f"take these off {ELSEWHERE.name}: {needless}"
    wrong = [
        f"{module} {test}"
        for module, test in listed.items()
        if not test.startswith("none: ") and not (tree.ROOT / test).is_file()
    ]
    assert not wrong, f"{ELSEWHERE.name} names tests that are not there: {wrong}"
