"""A store that version 0.1.0 wrote, by `aerobee up`, opens here with all that it had.

It has 300 messages "old 1" … of topic orders, and a group that consumed 120 of them.
"""

import json
import re
from datetime import timedelta
from pathlib import Path

from aerobee.client import Message, blocking
from aerobee.protocol.message.record import decode_record
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.store import MessageStore
from aerobee.store.inspect.check import check
from aerobee.testing import LocalCluster

from ..clocks import Clock
from ..waiting import LONG
from .conftest import OpenStore, Unpack, put

SETTINGS = StoreSettings(
    segment_bytes=65_536, queue_file_bytes=2000, index_slots=100, index_entries=400
)
# The same, as settings of a broker; and messages stay however old they are, and full the disk is.
BROKER = {
    "mappedFileSizeCommitLog": SETTINGS.segment_bytes,
    "mappedFileSizeConsumeQueue": SETTINGS.queue_file_bytes,
    "maxHashSlotNum": SETTINGS.index_slots,
    "maxIndexNum": SETTINGS.index_entries,
    "fileReservedTime": 1_000_000,
    "cleanFileForciblyEnable": False,
}
NUMBER = "[0-9]{20}"
# The files of a store with which 0.1.0 was started and served (docs/versions.md). Try that again
# before another file is added here.
OPENED_BY_0_1_0 = re.compile(
    rf"commitlog/{NUMBER}|consumequeue/[^/]+/[0-9]+/{NUMBER}|index/[0-9]{{17}}|timerlog/{NUMBER}|"
    r"checkpoint|lock|timerwheel|config/(timercheck|timermetrics(\.bak)?|"
    r"(topics|subscriptionGroup|consumerOffset|delayOffset|lmqConsumerOffset)\.json(\.bak)?)"
)


def orders(store: MessageStore) -> list[bytes]:
    """The bodies of topic orders, queue by queue."""
    found = []
    for queue_id in range(4):
        queue = store.state.queues.simple[("orders", queue_id)]
        for offset in range(queue.min_offset, queue.next):
            record = store.message_at(queue.entry(offset)[0])
            assert record is not None
            found.append(decode_record(record).body)
    return found


def test_a_store_of_0_1_0_opens_with_its_messages_and_goes_on(
    unpack: Unpack, open_store: OpenStore, clock: Clock
) -> None:
    clock.ms = 1_800_000_000_000  # after its messages
    root, _ = unpack("aerobee-0.1.0")
    # 0.1.0 noted the time of a send even if it stored nothing; our checkpoint replaces it.
    damaged = {name for name, part in check(root).parts.items() if part.damaged}
    assert damaged == {"checkpoint"}
    consumed = json.loads((root / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert sum(consumed["orders@billing"].values()) == 120
    store = open_store(root=root, settings=SETTINGS)
    assert sorted(orders(store)) == sorted(b"old %d" % number for number in range(1, 301))
    put(store, "orders", body=b"new")
    store.close()
    assert not check(root).is_damaged
    store = open_store(root=root, settings=SETTINGS)
    assert len(orders(store)) == 301


def test_a_broker_goes_on_with_a_store_of_0_1_0_and_leaves_files_that_0_1_0_opens(
    unpack: Unpack, tmp_path: Path
) -> None:
    root, _ = unpack("aerobee-0.1.0")
    root.rename(tmp_path / "broker-a")
    with LocalCluster(folder=tmp_path, **BROKER) as cluster:
        with blocking.Producer(cluster.name_server) as producer:
            producer.send(Message("orders", b"new", keys="k"))
            producer.send(Message("orders", b"later", delay_level=1))
            producer.send(Message("orders", b"much later", delay=timedelta(hours=1)))
        with blocking.Consumer(cluster.name_server, group="billing", topics=["orders"]) as consumer:
            bodies: set[bytes] = set()
            while len(bodies) < 182:  # the group has had 120 of 300
                message = consumer.receive(LONG)
                assert message is not None, f"{len(bodies)} messages came"
                bodies.add(message.body)
                message.ack()
        assert {b"new", b"later"} < bodies
    files = [path for path in (tmp_path / "broker-a").rglob("*") if path.is_file()]
    paths = {str(path.relative_to(tmp_path / "broker-a")) for path in files}
    assert {path for path in paths if not OPENED_BY_0_1_0.fullmatch(path)} == set()
