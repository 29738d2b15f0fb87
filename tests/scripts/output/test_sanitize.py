"""Text from the network can't move the cursor or act on the terminal that shows it."""

import asyncio
import json
import logging
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Row
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.command import Response
from aerobee.scripts.output.sanitize import SanitizingFormatter, json_line, sanitize, sanitize_body
from aerobee.scripts.output.table import table_lines

from ...waiting import PROCESS
from ..command import AEROBEE, Daemon, environment, output, refused, running, up

TITLE = "\x1b]0;owned\x07"  # sets the title of a terminal's window
ACTING = "a\x1b[2Jb\x9b1mc\x7fd\u202ee\u2028f"
SEEN = r"a\x1b[2Jb\x9b1mc\x7fd\u202ee\u2028f"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("up")
    with running(folder, *up(folder / "store")) as one:
        yield one


def test_control_characters_are_escaped_and_letters_stay() -> None:
    assert sanitize(ACTING) == SEEN
    text = "zwölf Äpfel 中文 👨\u200d👩 a\u00a0b"
    assert sanitize(text) == text
    assert sanitize("two\nlines\tand a half \ud800") == r"two\x0alines\x09and a half \ud800"


def test_a_body_keeps_its_lines_and_invalid_utf8_is_shown_byte_by_byte() -> None:
    assert (
        sanitize_body(b"a\r\nb\tc\rd\x1b[0m\xff\xc3\xa4")
        == r"a|b>c\x0dd\x1b[0m\xffä".replace("|", "\n").replace(">", "\t").encode()
    )


def test_json_output_is_escaped_and_decodes_to_the_same_value() -> None:
    line = json_line({ACTING: ["ä\n\ud800"]})
    assert sanitize(line) == line
    assert json.loads(line) == {ACTING: ["ä\n\ud800"]}
    assert "ä" in line


def test_the_columns_of_a_table_are_as_wide_as_the_escaped_text() -> None:
    assert list(table_lines(("NAME", "N"), [("a\x1b", 1), ("bbbbb", 2)])) == [
        "NAME   N", r"a\x1b  1", "bbbbb  2",
    ]  # fmt: skip


def test_a_log_record_is_escaped_to_one_line() -> None:
    try:
        raise ValueError(TITLE)
    except ValueError as wrong:
        fault = (type(wrong), wrong, wrong.__traceback__)
    record = logging.LogRecord("n", logging.INFO, "", 1, "from %s", ("x\n" + TITLE,), fault)
    first, *more = SanitizingFormatter("%(levelname)s %(message)s").format(record).splitlines()
    assert first == r"INFO from x\x0a\x1b]0;owned\x07"
    assert more[-1] == r"ValueError: \x1b]0;owned\x07"


def test_bodies_are_escaped_on_a_terminal_and_unchanged_in_a_pipe(
    daemon: Daemon, tmp_path: Path
) -> None:
    body = f"{TITLE}ä"
    output("pub", "acting", "-n", daemon.namesrv, data=body + "\n")
    words = ["sub", "acting", "--namesrv", daemon.namesrv, "--from", "earliest", "-n", "1"]
    assert output(*words) == body + "\n"
    assert json.loads(output(*words, "--json"))["body"] == body
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [*AEROBEE, *words], stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            timeout=PROCESS, env=environment(), check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        shown = os.read(ours, 1_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown == "\\x1b]0;owned\\x07ä\r\n"


async def test_a_remark_is_escaped_to_one_line() -> None:
    server = Server()

    def refuse(*_: object) -> Response:
        return Response(codes.SYSTEM_ERROR, remark=f"no{TITLE}\r\nSee elsewhere")

    rows = table([Row(codes.GET_BROKER_CLUSTER_INFO, None, refuse)])
    port = await server.listen("127.0.0.1", 0, rows)
    said = await asyncio.to_thread(refused, "cluster", "-n", f"127.0.0.1:{port}")
    await server.stop()
    assert r"no\x1b]0;owned\x07 See elsewhere" in said
