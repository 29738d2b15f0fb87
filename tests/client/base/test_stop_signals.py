"""Signals to a consuming program: handlers finish, and no message is consumed twice."""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.client import Consumer, Message, blocking
from aerobee.client.base.stop_signals import stop_signals
from aerobee.harness.child import Reporter
from aerobee.testing import LocalCluster

from ...waiting import LONG

PROGRAM = str(Path(__file__).parents[1] / "service.py")
BODIES = [str(number) for number in range(6)]
STOP = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A broker with six messages in one queue."""
    with LocalCluster() as running:
        with blocking.Admin(running.name_server) as admin:
            admin.create_topic("orders", 1)
            admin.create_topic("others", 1)
        with blocking.Producer(running.name_server) as producer:
            for body in BODIES:
                producer.send(Message("orders", body.encode()))
        yield running


def started(cluster: LocalCluster, folder: Path, kind: str) -> Reporter:
    """The program while two of its handlers work."""
    child = Reporter([sys.executable, PROGRAM, cluster.name_server, kind], folder / "stderr")
    child.wait_line(lambda _: len(child.events("begun")) == 2, LONG)
    return child


async def left(cluster: LocalCluster, count: int) -> list[str]:
    """The first `count` messages that the next member of the group gets."""
    topics = ["orders"]
    async with Consumer(cluster.name_server, group="g", topics=topics, start="earliest") as next_:
        found: list[str] = []
        while len(found) < count:
            message = await next_.receive()
            assert message is not None
            await message.ack()
            found.append(message.body.decode())
        return found


@pytest.mark.parametrize("number", STOP)
@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_a_signal_lets_handlers_finish_and_nothing_is_consumed_twice(
    kind: str, number: signal.Signals, cluster: LocalCluster, tmp_path: Path
) -> None:
    with started(cluster, tmp_path, kind) as child:
        child.process.send_signal(number)
        child.say("go")
        assert child.wait(LONG) == 0
        done = [each["body"] for each in child.events("done")]
        assert child.events("stopped")
        assert sorted(each["body"] for each in child.events("begun")) == sorted(done)
        assert child.stderr_path.read_text() == ""
    rest = asyncio.run(asyncio.wait_for(left(cluster, len(BODIES) - len(done)), LONG))
    assert sorted(done + rest) == BODIES


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_a_second_signal_does_not_wait_for_handlers(
    kind: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    with started(cluster, tmp_path, kind) as child:
        child.process.send_signal(signal.SIGTERM)
        child.process.send_signal(signal.SIGINT)
        child.wait_event("stopped", LONG)  # then the program waits for its handlers' threads
        assert not child.events("done")
        said = child.stderr_path.read_text()
        assert "Traceback" not in said
        child.process.send_signal(signal.SIGTERM)  # the default action again
        assert child.wait(LONG) == -signal.SIGTERM
    assert sorted(asyncio.run(asyncio.wait_for(left(cluster, len(BODIES)), LONG))) == BODIES


def test_a_program_with_its_own_handler_keeps_it(cluster: LocalCluster, tmp_path: Path) -> None:
    with started(cluster, tmp_path, "others") as child:
        child.process.send_signal(signal.SIGTERM)
        child.wait_event("own handler", LONG)
        assert child.wait(LONG) == 0
        assert len(child.events("done")) == len(BODIES)


def test_the_previous_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in STOP]
    with stop_signals(lambda: None):
        assert [signal.getsignal(number) for number in STOP] != before
        with stop_signals(lambda: None):
            pass
        assert [signal.getsignal(number) for number in STOP] != before
    assert [signal.getsignal(number) for number in STOP] == before


def test_no_signal_handler_is_installed_in_another_thread() -> None:
    before = [signal.getsignal(number) for number in STOP]
    seen: list[object] = []

    def read() -> None:
        with stop_signals(lambda: None):
            seen.extend(signal.getsignal(number) for number in STOP)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(LONG)
    assert seen == before


async def test_handle_signals_false_installs_no_signal_handler(cluster: LocalCluster) -> None:
    begun = asyncio.Event()
    consumer = Consumer(cluster.name_server, group="g", topics=["orders"], start="earliest")

    @consumer.listener
    async def work(_: object) -> None:
        begun.set()

    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.create_task(consumer.run(handle_signals=False))
    await asyncio.wait_for(begun.wait(), LONG)
    assert signal.getsignal(signal.SIGTERM) is before
    await consumer.close()
    await running


async def test_a_stop_waits_for_handlers_up_to_drain_timeout(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()
    consumer = Consumer(cluster.name_server, group="g", topics=["orders"], start="earliest")

    @consumer.listener
    async def work(_: object) -> None:
        begun.set()
        await asyncio.Event().wait()  # for ever

    running = asyncio.create_task(consumer.run(drain_timeout=0.01))
    await asyncio.wait_for(begun.wait(), LONG)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(running, LONG)
    assert "group g is stopped at once" in caplog.text
