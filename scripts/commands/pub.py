"""`aerobee pub`: each line of a file or of standard input becomes a message.

Lines that are read together are sent in small batches: a long file is sent quickly and spreads over
the topic's queues and brokers, and a typed line is sent at once.
"""

import argparse
import base64
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from ...client.base.words import counted
from ...client.blocking import Message, Producer
from ...client.errors import AerobeeError, BatchError
from ..connecting import add_options, security
from ..output.command_error import CommandError

READ_BYTES_MAX = 256 << 10  # taken from the input at once
LINE_BYTES_MAX = 8 << 20  # a message has at most 4 MiB, in base64 a third more
RETRY_SECONDS = 1.0  # with --keep-trying, between two tries that each wait for a while
BATCH_LINES_MIN, BATCH_LINES_MAX = 8, 64  # where there are that many
PROGRESS_DELAY_SECONDS = 1.0  # short input shows no bar

Line = tuple[int, bytes]  # its number from 1, its bytes without the line end


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of `aerobee pub`."""
    parser.description = (
        "Send messages: each line is the body of one, or with --json an object with body (or "
        "bodyBase64) and, if wanted, tags, keys and properties. Empty lines are passed over."
    )
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("file", nargs="?", default="-", metavar="FILE", help="- for standard input (the default)")
    add("--tags", "--tag", dest="tags", metavar="TAG", help="the tag of each message")
    add("--key", action="append", default=[], dest="keys", metavar="KEY", help="may be repeated")
    add(
        "-p",
        "--property",
        action="append",
        default=[],
        dest="properties",
        metavar="NAME=VALUE",
        help="may be repeated",
    )
    add("--json", action="store_true", help="each line is an object, as `sub --json` prints it")
    add(
        "--keep-trying",
        action="store_true",
        help="go on once brokers are back; messages whose answer was lost may be there twice",
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Send everything, then print the number of messages."""
    make = _json_message if options.json else _text_message
    properties = dict(_pair(text) for text in options.properties)
    sent = 0
    with (
        _open(options.file) as source,
        Producer(options.namesrv, group="aerobee-pub", security=security(options)) as producer,
        _progress(source) as bar,
    ):
        if source.isatty():
            print("one message a line, Ctrl-D ends", file=sys.stderr)
        for lines in _batches(source, bar, lambda: _queues(producer, options.topic)):
            messages = [make(line, options, properties) for line in lines]
            try:
                _send(producer, messages, keep_trying=options.keep_trying)
            except AerobeeError as wrong:
                where = f"line {lines[0][0]}"
                if len(lines) > 1:
                    where = f"lines {lines[0][0]} to {lines[-1][0]}"
                raise CommandError(f"{sent} messages were sent before {where}: {wrong}") from wrong
            sent += len(messages)
    print(f"sent {counted(sent, 'message')} to {options.topic}")
    return 0


def _send(producer: Producer, messages: list[Message], *, keep_trying: bool) -> None:
    """Send them; with `keep_trying` again and again, as long as another try may succeed."""
    is_said = False
    while True:
        try:
            if len(messages) == 1:
                producer.send(messages[0])
            else:
                producer.send_batch(messages)
        except AerobeeError as wrong:
            if not keep_trying or not wrong.retriable:
                raise
            if not is_said:
                tqdm.write(f"aerobee pub: {wrong}; trying until it works", file=sys.stderr)
                is_said = True
            if isinstance(wrong, BatchError):
                messages = wrong.unsent
            time.sleep(RETRY_SECONDS)
        else:
            return


def _text_message(line: Line, options: argparse.Namespace, properties: dict[str, str]) -> Message:
    return Message(
        options.topic, line[1], tags=options.tags, keys=options.keys, properties=properties
    )


def _json_message(line: Line, options: argparse.Namespace, properties: dict[str, str]) -> Message:
    number, text = line
    try:
        found = json.loads(text)
        body = _body(found)
        tags, keys, more = found.get("tags"), found.get("keys"), found.get("properties")
        _check("tags", tags, isinstance(tags, str), "a text")
        keys = [keys] if isinstance(keys, str) else [] if keys is None else keys
        listed = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
        _check("keys", keys, listed, "a list of texts")
        _check("properties", more, isinstance(more, dict), "an object")
        for name, value in (more or {}).items():
            if not isinstance(value, str):
                raise ValueError(f"property {name!a} must be a text, it is {json.dumps(value)}")
    except ValueError as wrong:
        raise CommandError(
            f"line {number} is not a JSON object with a body ({wrong}); it and those after it "
            "were not sent"
        ) from None
    return Message(
        options.topic,
        body,
        tags=tags or options.tags,
        keys=keys or options.keys,
        properties={**properties, **(more or {})},
    )


def _check(name: str, value: object, holds: bool, wanted: str) -> None:
    if value is not None and not holds:
        raise ValueError(f"{name} must be {wanted}")


def _body(found: object) -> bytes:
    if not isinstance(found, dict):
        raise ValueError("it is JSON of another kind")
    if "bodyBase64" in found:
        packed = found["bodyBase64"]
        _check("bodyBase64", packed, isinstance(packed, str), "a text")
        return base64.b64decode(packed or "", validate=True)
    if "body" not in found:
        raise ValueError("it has neither body nor bodyBase64")
    body = found["body"]
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"-p {text!r} has no value; write -p name=value")
    return name, value


def _open(name: str) -> Any:
    return nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")


def _progress(source: BinaryIO) -> "tqdm[Any]":
    state = os.fstat(source.fileno())
    size = state.st_size if stat.S_ISREG(state.st_mode) else None
    return tqdm(
        total=size,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        desc="sending",
        disable=None,  # unless standard error is a terminal
        delay=PROGRESS_DELAY_SECONDS,
        leave=False,
    )


def _queues(producer: Producer, topic: str) -> int:
    """The number of queues of the topic; 1 if unknown, since the send then raises the reason."""
    try:
        return len(producer.queues(topic))
    except AerobeeError:
        return 1


def _batches(source: Any, bar: "tqdm[Any]", queues: Callable[[], int]) -> Iterator[list[Line]]:
    """The non-empty lines, in batches; the lines of one batch were read together."""
    number, rest = 0, b""
    while data := source.read1(READ_BYTES_MAX):
        *whole, rest = (rest + data).split(b"\n")
        lines = [(number + at, line.rstrip(b"\r")) for at, line in enumerate(whole, 1)]
        number += len(whole)
        yield from _cut([line for line in lines if line[1]], queues)
        if len(rest) > LINE_BYTES_MAX:
            raise CommandError(
                f"line {number + 1} has over {LINE_BYTES_MAX} bytes, which no broker takes; is "
                "this a file with one message a line?"
            )
        bar.update(len(data))
    if rest.rstrip(b"\r"):
        yield [(number + 1, rest.rstrip(b"\r"))]


def _cut(lines: list[Line], queues: Callable[[], int]) -> Iterator[list[Line]]:
    """Batches of these lines, small enough that every queue gets one: each goes to the next."""
    size = len(lines)
    if size > BATCH_LINES_MIN:
        each = -(-size // max(1, queues()))
        size = min(BATCH_LINES_MAX, max(BATCH_LINES_MIN, each))
    for at in range(0, len(lines), size or 1):
        yield lines[at : at + size]
