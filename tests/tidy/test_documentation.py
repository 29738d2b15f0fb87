"""README and the pages of docs/: whole, with no program in them that a test does not run."""

import re
from functools import cache

from aerobee.broker.settings.config import KEYS
from aerobee.conf.load import USED
from aerobee.scripts import cli
from aerobee.tools import generated, pages

from . import tree

DOCS = tree.ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "reference")
PROGRAMS = {
    path: path.read_text()
    for path in (tree.ROOT / "examples").rglob("*")
    if path.suffix in {".py", ".java", ".js", ".go", ".rs"}
}
# Pages whose blocks a test of their own types into a shell, one after the other: tests/docs.
RUN_IN_ORDER = {"security.md"}
ROOT_DOCUMENTS = [
    tree.ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
]
BLOCK = re.compile(r"^```(python|java|javascript|go|rust)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A path of this tree in a text: in backquotes, with a known folder before the first slash.
MENTIONED = re.compile(rf"`((?:{'|'.join(tree.FOLDERS)}|tests)/[\w./-]+?)/?`")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


@cache
def generated_pages() -> dict[str, str]:
    """The pages that scripts/docs writes into docs/reference, by their names."""
    return pages.pages()


def test_each_program_of_the_readme_is_one_of_the_examples_as_it_stands() -> None:
    """The examples are run by tests/examples and typed strictly by scripts/check."""
    found = [code for _, code in BLOCK.findall((tree.ROOT / "README.md").read_text())]
    assert len(found) >= 3
    strange = [code for code in found if not any(code in each for each in PROGRAMS.values())]
    assert not strange, f"in README.md, but in no file of examples/:\n{strange[0]}"


def test_each_program_of_a_page_is_one_of_the_examples_as_it_stands() -> None:
    for page in PAGES:
        text = page.read_text()
        marked = [code for _, _, code in generated.PROGRAM.findall(text)]
        for _, code in BLOCK.findall(text) if page.name not in RUN_IN_ORDER else ():
            assert code in marked, (
                f"{page.name}: put this into examples/, with a test, and its name above it:\n{code}"
            )


def test_every_example_is_shown_somewhere() -> None:
    documents = [tree.ROOT / "README.md", *PAGES]
    text = "\n".join(document.read_text() for document in documents)
    unseen = [
        str(path.relative_to(tree.ROOT))
        for path in PROGRAMS
        if str(path.relative_to(tree.ROOT)) not in text and path.read_text() not in text
    ]
    assert not unseen, f"no page shows {unseen}"


def test_links_of_the_root_documents_lead_somewhere() -> None:
    """mkdocs looks at those between the pages of docs/, and at the navigation."""
    made = {(DOCS / "reference" / name).resolve() for name in generated_pages()}
    missing = [
        f"{page.name}: {target}"
        for page in ROOT_DOCUMENTS
        for target, _ in LINK.findall(page.read_text())
        if not re.match(r"https?://", target)
        and (page.parent / target).resolve() not in made
        and not (page.parent / target).exists()
    ]
    assert missing == []


def test_files_that_a_document_names_exist() -> None:
    missing = [
        f"{document}: {name}"
        for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")
        for name in sorted(set(MENTIONED.findall((tree.ROOT / document).read_text())))
        if not (tree.ROOT / name).exists()
    ]
    assert missing == []


def test_the_reference_has_every_public_name() -> None:
    made = generated_pages()
    for module in pages.MODULES:
        for name in pages.MODULES[module] or pages.public_names(module):
            assert f"\n::: {module}.{name}\n" in made[f"{module}.md"]
    assert "::: aerobee.client.Producer\n" in made["aerobee.client.md"]
    assert "::: aerobee.client.errors.NoRouteError\n" in made["aerobee.client.errors.md"]


def test_the_reference_has_every_command_and_every_setting() -> None:
    made = generated_pages()
    for command in cli.COMMANDS:
        assert f"## `aerobee {command}`\n" in made["command.md"]
        assert f"usage: aerobee {command} " in made["command.md"]
    listed = set(re.findall(r"`(\w+)`", made["settings-broker.md"]))
    assert {key for key in KEYS.fields if KEYS.state(key) == USED} <= listed
    assert "`recallMessageEnable` **live**" in made["settings-broker.md"]
    assert "| `kvConfigPath` |" in made["settings-namesrv.md"]
