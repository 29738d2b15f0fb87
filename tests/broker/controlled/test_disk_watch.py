"""When a disk counts as hanging."""

from aerobee.broker.controlled.disk_watch import DiskWatch

from ...clocks import Clock


def test_a_disk_hangs_once_a_byte_has_waited_for_the_limit() -> None:
    clock = Clock()
    watch = DiskWatch(8_000, clock)
    watch.see(100, 50)
    for second in range(8):
        assert watch.hangs_ms == 0, second
        clock.ms += 1_000
        watch.see(200 + second, 99)
    assert watch.hangs_ms == 8_000
    watch.see(300, 100)
    assert watch.hangs_ms == 0


def test_a_disk_that_follows_a_log_that_grows_does_not_hang() -> None:
    clock = Clock()
    watch = DiskWatch(8_000, clock)
    for second in range(60):
        watch.see(100 * second, 100 * second - 50)  # always behind, and always later there
        clock.ms += 1_000
    assert watch.hangs_ms == 0


def test_a_process_that_was_stopped_blames_no_disk() -> None:
    clock = Clock()
    watch = DiskWatch(8_000, clock)
    watch.see(100, 100)
    watch.see(200, 100)
    clock.ms += 60_000
    watch.see(200, 100)
    assert watch.hangs_ms == 0
