"""Pages of the documentation made from the code, and from the documents at the root.

    python -m aerobee.tools.pages FOLDER      writes them there, as scripts/docs does first

From the code come the API, the command line and the settings: a name in `__all__`, an option of a
command or a key in conf/*.yaml is in the documentation without a further step.
"""

import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from ..broker.settings.config import KEYS
from ..broker.settings.dynamic import DYNAMIC
from ..conf.java_keys import JAVA_KEYS
from ..conf.load import ACCEPTED
from ..scripts import cli

ROOT = Path(__file__).resolve().parents[1]
# Module -> the names it has besides those of `__all__`.
MODULES: dict[str, tuple[str, ...]] = {
    "aerobee.client": (),
    "aerobee.client.blocking": (),
    "aerobee.client.errors": (),
    "aerobee.testing": (),
    "aerobee.testing.fixtures": ("aerobee_cluster", "aerobee_clusters"),
    "aerobee.store": (),
    "aerobee.spark": (),
}
# Documents at the root -> their pages on the site.
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "tests/README.md": "tests.md",
}
SECTION = re.compile(r"# -+ (.*?) -+$")
KEY = re.compile(r"#(\w+):(.*)$")


class Block(NamedTuple):
    """Keys of a settings file that one comment explains, with their defaults."""

    section: str
    keys: list[tuple[str, str]]
    comment: str


def main(argv: Sequence[str] | None = None) -> int:
    """Write all pages into the folder that is given."""
    words = sys.argv[1:] if argv is None else argv
    folder = Path(words[0])
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def pages() -> dict[str, str]:
    """Every page by its path."""
    found = {f"{module}.md": api_page(module) for module in MODULES}
    found["command.md"] = command_page()
    found["settings-broker.md"] = settings_page("broker")
    found["settings-namesrv.md"] = settings_page("namesrv")
    found["settings-controller.md"] = settings_page("controller")
    found["settings-proxy.md"] = settings_page("proxy")
    found |= {page: root_page(document) for document, page in ROOT_PAGES.items()}
    return found


def root_page(document: str) -> str:
    """A document of the root as a page, with links that lead to the other pages of the site."""
    text = (ROOT / document).read_text().replace("](docs/", "](../")
    for other, page in ROOT_PAGES.items():
        text = text.replace(f"]({other})", f"]({page})")
    return text


def api_page(module: str) -> str:
    """A module and each of its public names, for mkdocstrings."""
    names = MODULES[module] or public_names(module)
    parts = [f"# `{module}`\n", f"::: {module}\n    options:\n      members: false\n"]
    parts += [f"::: {module}.{name}\n" for name in names]
    return "\n".join(parts)


def public_names(module: str) -> list[str]:
    """The names that `from module import *` gives, except modules with a page of their own."""
    loaded = import_module(module)
    names = getattr(loaded, "__all__", None) or [
        name
        for name, value in vars(loaded).items()
        if isinstance(value, type) and value.__module__ == module
    ]
    return sorted(name for name in names if f"{module}.{name}" not in MODULES)


def command_page() -> str:
    """The --help text of each command."""
    parts = ["# The command `aerobee`\n", _fenced(help_of())]
    for command, (_, does) in cli.COMMANDS.items():
        parts += [f"## `aerobee {command}`\n", f"{does[0].upper()}{does[1:]}.\n"]
        parts.append(_fenced(help_of(command)))
    return "\n".join(parts)


def help_of(*command: str) -> str:
    """The help of a command, or of all."""
    out = io.StringIO()
    width = {"COLUMNS": "90"}  # what argparse takes, whatever terminal there is
    with patch.dict(os.environ, width), redirect_stdout(out), suppress(SystemExit):
        cli.main([*command, "--help"])
    return out.getvalue()


def settings_page(daemon: str) -> str:
    """Each key of conf/DAEMON.yaml with its default and effect."""
    hot = DYNAMIC if daemon == "broker" else frozenset[str]()
    lines = [f"# Settings of the {'name server' if daemon == 'namesrv' else daemon}\n"]
    lines.append(
        f"This page is made from `conf/{daemon}.yaml`. Times are in milliseconds unless a line "
        "says otherwise. A later source wins: the file (`-c FILE`), a variable such as "
        "`AEROBEE_LISTEN_PORT`, `--set listenPort=10911`."
    )
    if hot:
        lines.append(
            "\nA key marked **live** can be changed while the broker runs, by `mqadmin "
            "updateBrokerConfig` or `Admin.update_broker_config`."
        )
    section = ""
    for block in blocks((ROOT / "conf" / f"{daemon}.yaml").read_text()):
        if block.section != section:
            section = block.section
            lines += [f"\n## {section[0].upper()}{section[1:]}\n"]
            lines += ["| setting | default | effect |", "| --- | --- | --- |"]
        names = "<br>".join(f"`{key}`{' **live**' * (key in hot)}" for key, _ in block.keys)
        defaults = "<br>".join(f"`{value}`" if value else "none" for _, value in block.keys)
        lines.append(f"| {names} | {defaults} | {_cell(block.comment)} |")
    if daemon == "broker":
        unused = sorted(key for key in JAVA_KEYS if KEYS.state(key) == ACCEPTED)
        lines += ["\n## Accepted without effect\n"]
        lines += ["RocketMQ's brokers have these keys. Here they change nothing, and do no harm.\n"]
        lines.append(", ".join(f"`{key}`" for key in unused))
    return "\n".join(lines) + "\n"


def blocks(text: str) -> Iterator[Block]:
    """The settings of a file, in its order; the comment at its head is none of a setting."""
    section, comment = "", list[str]()
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        comment = []
        keys: list[tuple[str, str]] = []
        for line in lines:
            if found := SECTION.match(line):
                section = found[1]
            elif found := KEY.match(line):
                keys.append((found[1], found[2].strip()))
            elif keys and line.startswith("# "):
                # A comment behind a key begins the next block of this paragraph.
                yield Block(section, keys, " ".join(comment))
                comment, keys = [line[2:]], []
            else:
                comment.append(line.removeprefix("#").strip())
        if keys:
            yield Block(section, keys, " ".join(comment))


def _cell(text: str) -> str:
    """A text as one cell of a table, in which nothing is markup."""
    return re.sub(r"([|<>*_\[\]`])", r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
