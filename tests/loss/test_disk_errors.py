"""Disk errors: each call fails once, one after the other; a disk gets full and has room again."""

import errno
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.headers.send import SendMessage
from aerobee.store.base.errors import DiskFull, StoreError

from .power import PowerDisk
from .workload import A0, B0, STEPS, Point, Run, on, recovered

KINDS = {
    "open": {"open", "make"},
    "write": {"write", "grow"},
    "sync": {"sync"},
    "rename": {"rename"},
    "unlink": {"unlink"},
}
WORK = (
    "send",
    "send batch",
    "two in a turn",
    "timers",
    "commit",
    "send long",
    "fill the file",
    "send while it syncs",
    "commit",
    "delete",
    "send",
    "fill the file",
    "sync",
    "timers",
    "clean",
    "restart",
    "send",
    "two in a turn",
    "commit",
    "clean",
)


def attempt(run: Run, work: Callable[[Run], None]) -> StoreError | None:
    """Takes a step as a broker does. A refused message stays refused; a store that fails to open is
    opened again. No error but a StoreError may escape.
    """
    try:
        work(run)
    except StoreError as wrong:
        if run.store._is_open:
            return wrong
        run.kill()
        return wrong
    return None


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", KINDS)
def test_no_acknowledged_message_is_lost_whichever_call_fails(
    kind: str, number: int, sync_flush: bool, quiet: None
) -> None:
    for nth in itertools.count(1):
        left = nth
        hit = ""

        def fail(call: str, path: str) -> None:
            nonlocal left, hit
            if call in KINDS[kind]:
                left -= 1
                if left == 0:
                    hit = path
                    raise OSError(number, os.strerror(number), path)

        disk = PowerDisk()
        run = Run(disk, sync_flush=sync_flush)
        with on(disk):
            disk.fail = fail
            attempt(run, Run.open)
            for name in WORK:
                wrong = attempt(run, STEPS[name])
                assert wrong is None or str(wrong).strip(), name
                if run.store.refusal is not None:
                    attempt(run, Run.read)  # stored messages can still be read
                    run.kill()  # an operator restarts the broker
            disk.fail = None
            refused = attempt(run, lambda run: run.send(A0))
            assert refused is None, f"after the {nth}th {kind} had failed: {refused}"
            run.sync()
        run.ledger.check()
        point = Point(run.ledger, frozenset(one.body for one in run.unsafe))
        recovered(disk.killed(), point, sync_flush=sync_flush, power=False).ledger.check()
        nothing_kept = [False] * len(disk.cut().units)
        left_over = disk.cut()
        image = left_over.image(nothing_kept, Random(1))
        recovered(image, point, sync_flush=sync_flush, power=True).ledger.check()
        if not hit:
            assert left > 0
            break
    assert nth > {"rename": 3, "unlink": 3}.get(kind, 20)


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("calls", [1, 10, 10_000])
@pytest.mark.parametrize(
    ("kind", "number", "do"),
    [("open", errno.EMFILE, "raise ulimit -n"), ("map", errno.ENOMEM, "vm.max_map_count")],
)
def test_a_shortage_refuses_messages_until_it_is_over(
    kind: str, number: int, do: str, calls: int, sync_flush: bool, quiet: None
) -> None:
    """Let this many calls fail, from each call on in turn; then the work goes on without a
    restart."""
    wanted = False
    for nth in itertools.count(1):
        made = 0

        def fail(call: str, path: str, nth: int = nth) -> None:
            nonlocal made
            if call == kind:
                made += 1
                if nth <= made < nth + calls:
                    raise OSError(number, os.strerror(number), path)

        disk = PowerDisk()
        run = Run(disk, sync_flush=sync_flush)
        with on(disk):
            run.open()
            disk.fail = fail
            for name in (*WORK, "fill the file", "sync"):
                if name != "restart":
                    wrong = attempt(run, STEPS[name])
                    assert wrong is None or do in str(wrong), name
                    assert run.store.refusal is None
                    wanted = wanted or wrong is not None
                    if wrong is not None and name == "delete":
                        disk.fail = None  # half a topic is for nobody to send to
                        assert attempt(run, Run.delete) is None
            disk.fail = None
            assert attempt(run, lambda run: run.send(A0)) is None
            run.sync()
            assert not run.waiting
            assert not run.unsafe
            run.store.sync()
        run.ledger.check()
        point = Point(run.ledger, frozenset())
        recovered(disk.killed(), point, sync_flush=sync_flush, power=False).ledger.check()
        left_over = disk.cut()
        image = left_over.image([False] * len(left_over.units), Random(1))
        recovered(image, point, sync_flush=sync_flush, power=True).ledger.check()
        if made < nth:
            break
    assert nth > 5
    assert wanted


def test_a_full_disk_refuses_messages_until_there_is_room(quiet: None) -> None:
    disk = PowerDisk()
    is_full = False

    def fail(call: str, path: str) -> None:
        if is_full and call in ("grow", "make"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    run = Run(disk, sync_flush=True)
    with on(disk):
        run.open()
        disk.fail = fail
        run.send(A0)
        run.sync()
        for _ in range(3):
            is_full = True
            refused: StoreError | None = None
            while refused is None:
                refused = attempt(run, lambda run: run.send(B0, 800))
            assert isinstance(refused, DiskFull)
            assert "free some space" in str(refused)
            assert run.store.refusal is None
            run.read()
            run.sync()  # accepted messages reach the disk all the same
            assert not run.waiting
            is_full = False
            assert attempt(run, lambda run: run.send(B0, 800)) is None
        run.sync()
        assert not run.waiting
        run.ledger.check()
    point = Point(run.ledger, frozenset())
    recovered(disk.killed(), point, sync_flush=True, power=False).ledger.check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here; the test above simulates a full disk")
    if done.returncode:
        pytest.skip(
            f"nobody may mount here ({done.stderr.strip()}); the test above simulates a full disk"
        )
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_small_disk_takes_messages_again_once_there_is_room(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 << 20))
    config = BrokerConfig(
        broker_name="b",
        broker_ip1="127.0.0.1",
        listen_port=0,
        store_path_root_dir=str(small_disk / "store"),
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=40_000,
        max_hash_slot_num=1_000,
        max_index_num=20_000,
    )
    broker = Broker(config)
    await broker.start()
    broker.groups.find("g")
    peers = Peers()
    address = f"127.0.0.1:{broker.port}"

    async def send() -> tuple[int, str]:
        header = SendMessage("pg", "T", "TBW102", 1, 0, 0, 1, 0, "", 0)
        answer = await peers.request(address, codes.SEND_MESSAGE_V2, header, bytes(60_000), 20)
        return answer.code, answer.remark or ""

    async def commit(offset: int) -> int:
        fields = {"topic": "T", "consumerGroup": "g", "queueId": "0", "commitOffset": str(offset)}
        answer = await peers.request(address, codes.UPDATE_CONSUMER_OFFSET, fields, b"", 20)
        return answer.code

    taken, code, remark = 0, 0, ""
    while code == 0:
        code, remark = await send()
        taken += code == 0
    assert code == codes.SERVICE_NOT_AVAILABLE
    assert "free some space" in remark or "disk is full" in remark
    assert taken > 100
    for offset in range(0, taken, 50):
        found = broker.store.get("T", 0, offset, 1, 1 << 20)
        assert found.count == 1
    assert await commit(taken) == 0
    assert broker.offsets.get("T", "g", 0) == taken
    ballast.unlink()
    # The store checks the disk every 10 s (cleanResourceInterval); the test does not wait for that.
    await broker.cleaner.run()
    code, remark = await send()
    assert (code, remark) == (0, "")
    assert broker.store.max_offset("T", 0) == taken + 1
    await peers.close()
    await broker.stop()
    again = Broker(config)
    await again.start()
    assert again.store.max_offset("T", 0) == taken + 1
    assert again.offsets.get("T", "g", 0) == taken
    await again.stop()
