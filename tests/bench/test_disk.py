"""The store that look-ups by key are measured on."""

from pathlib import Path

from aerobee.bench import disk
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.store import MessageStore


def test_the_wait_for_the_index_is_measured_while_a_store_is_filled(tmp_path: Path) -> None:
    wait = disk.fill_keyed(tmp_path / "store", 5_000)
    assert wait.rate > 0
    assert 0 <= wait.share < 1
    store = MessageStore(tmp_path / "store", StoreSettings(), bytes(8), lambda: 1)
    store.open()
    assert len(store.query(disk.KEYED, "order-4999", 0, 1 << 62)) == 1
    assert len(store.query(disk.KEYED, f"{4_999:032X}", 0, 1 << 62)) == 1
    store.close()
