"""Logging of exceptions of the application's function: one line with its place in the code."""

import asyncio
import json
import logging
from collections.abc import Callable

import pytest
from aerobee.client import (
    Consumer,
    Message,
    MessageView,
    blocking,
)
from aerobee.client.base.failures import log_failure
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..fakes import until

log = logging.getLogger("aerobee.test")


def parse(message: MessageView) -> object:
    return json.loads(message.body)  # where it fails


def line_of(text: str) -> int:
    """The line of this file that has the text first."""
    with open(__file__) as lines:
        return next(number for number, line in enumerate(lines, 1) if text in line)


EXPECTED = f"{__file__}:{line_of('where it fails')} in parse)"


async def with_a_coroutine(address: str, _: Callable[[], bool]) -> None:
    consumer = Consumer(address, group="g", topics=["orders"], start="earliest")

    @consumer.listener
    async def work(message: MessageView) -> None:
        parse(message)

    async with consumer:
        await until(_)


async def with_an_ordinary_function(address: str, is_said: Callable[[], bool]) -> None:
    consumer = Consumer(address, group="g", topics=["orders"], start="earliest")
    consumer.listener(lambda message: parse(message))
    async with consumer:
        await until(is_said)


async def with_a_block(address: str, _: Callable[[], bool]) -> None:
    async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
        message = await consumer.receive()
        assert message is not None
        async with message.process():
            parse(message)


async def without_a_loop(address: str, _: Callable[[], bool]) -> None:
    def work() -> None:
        topics, start = ["orders"], "earliest"
        with blocking.Consumer(address, group="g", topics=topics, start=start) as consumer:
            message = consumer.receive()
            assert message is not None
            with message.process():
                parse(message)

    await asyncio.to_thread(work)


@pytest.mark.parametrize(
    "fail", [with_a_coroutine, with_an_ordinary_function, with_a_block, without_a_loop]
)
async def test_a_failed_handler_is_one_line_with_the_place_in_its_code(
    fail: object, aerobee_cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "aerobee.client")

    def said() -> list[logging.LogRecord]:
        return [each for each in caplog.records if "it comes again" in each.getMessage()]

    address = aerobee_cluster.name_server
    with blocking.Producer(address) as producer:
        await asyncio.to_thread(producer.send, Message("orders", b"no JSON"))
    assert callable(fail)
    await asyncio.wait_for(fail(address, lambda: bool(said())), LONG)
    (line,) = said()
    assert line.levelname == "WARNING"
    assert line.exc_info is None
    assert line.getMessage().endswith(EXPECTED)
    assert ": JSONDecodeError: Expecting value: line 1 column 1 (char 0) (at " in line.getMessage()
    traces = [each for each in caplog.records if each.exc_info and each.levelname == "DEBUG"]
    assert [each.exc_info[0] for each in traces if each.exc_info] == [json.JSONDecodeError]


def test_a_text_of_many_lines_is_one_line_and_not_too_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise ValueError("a\nb\n" + "x" * 10_000)
    except ValueError as error:
        log_failure(log, error, "working on %s failed", "it")
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("working on it failed: ValueError: a b xxx")
    assert "\n" not in line
    assert len(line) < 1_000


def test_an_error_without_a_place_is_told_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(log, KeyError(), "it failed")
    assert [each.getMessage() for each in caplog.records] == ["it failed: KeyError"]
