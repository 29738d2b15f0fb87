"""A store that version 0.1.0 wrote, by `aerobee up`, opens here with all that it had.

It has 300 messages "old 1" … of topic orders, and a group that consumed 120 of them.
"""

import json

import pytest
from aerobee.protocol.message.record import decode_record
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.store import MessageStore
from aerobee.store.inspect.check import check

from .conftest import Clock, OpenStore, Unpack, put

SETTINGS = StoreSettings(
    segment_bytes=65_536, queue_file_bytes=2000, index_slots=100, index_entries=400
)


def orders(store: MessageStore) -> list[bytes]:
    """The bodies of topic orders, queue by queue."""
    found = []
    for queue_id in range(4):
        queue = store.state.queues.plain[("orders", queue_id)]
        for offset in range(queue.min_offset, queue.next):
            record = store.message_at(queue.entry(offset)[0])
            assert record is not None
            found.append(decode_record(record).body)
    return found


@pytest.mark.requirement("Store: Stores of older versions open, with all that they had")
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
