"""The requirements that tests fulfil, for a page of the documentation.

A test says what it fulfils by a marker, `@pytest.mark.requirement("section: text")`. Tests with the
same text fulfil one requirement together.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


HEAD = """# Requirements and tests

The requirements that tests fulfil, by section. The page is made from the markers
`@pytest.mark.requirement`.

"""


def page() -> str:
    """Every requirement with its tests, a table for each section; ValueError for a wrong marker."""
    sections: dict[str, dict[str, list[str]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = str(path.relative_to(ROOT))
        for test, marker in markers(path.read_text()):
            section, found, text = marker.partition(": ")
            if not found:
                raise ValueError(f'{file}::{test}: write the marker as "section: text"')
            tests = sections.setdefault(section, {}).setdefault(text, [])
            tests.append(f"`{file}::{test}`")
    return HEAD + "\n".join(_section(name, rows) for name, rows in sorted(sections.items()))


def markers(source: str) -> Iterator[tuple[str, str]]:
    """The tests of a file that have the marker, each with one text of it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                for text in _texts(decorator):
                    yield node.name, text


def _texts(decorator: ast.expr) -> list[str]:
    if not isinstance(decorator, ast.Call):
        return []
    if ast.unparse(decorator.func) != "pytest.mark.requirement":
        return []
    return [ast.literal_eval(argument) for argument in decorator.args]


def _section(name: str, rows: dict[str, list[str]]) -> str:
    lines = [f"## {name}\n", "| requirement | tests |", "| --- | --- |"]
    lines += [f"| {text} | {' '.join(rows[text])} |" for text in sorted(rows)]
    return "\n".join(lines) + "\n"
