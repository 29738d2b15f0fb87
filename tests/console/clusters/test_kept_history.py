"""A history outlives the console in a file; a damaged file is set aside."""

import logging
from pathlib import Path

import pytest
from aerobee.console.clusters.history import STEP_MS, History
from aerobee.console.clusters.kept_history import KeptHistory, read

BEGIN_MS = 1_000 * STEP_MS


async def kept(path: Path) -> History:
    """A history of two series that was written to the file."""
    history = History()
    for number in range(5):
        history.add(("topic", "orders"), BEGIN_MS + number * STEP_MS, number * 1.5)
    history.add(("in", "broker-a", 0), BEGIN_MS, 7)
    saving = KeptHistory(history, path)
    await saving.start()
    await saving.stop()
    return history


async def test_a_restart_keeps_all_points_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "main.history"
    before = await kept(path)
    after = History()
    saving = KeptHistory(after, path)
    await saving.start()
    for key in (("topic", "orders"), ("in", "broker-a", 0)):
        assert after.points(key) == before.points(key)
    assert after.bytes == before.bytes
    after.add(("topic", "orders"), BEGIN_MS + 6 * STEP_MS, 4)
    assert after.points(("topic", "orders")).values == [0.0, 1.5, 3.0, 4.5, 6.0, None, 4.0]
    await saving.stop()
    assert [one.name for one in path.parent.iterdir()] == ["main.history"]


async def test_what_was_kept_obeys_the_limit_of_memory(tmp_path: Path) -> None:
    path = tmp_path / "main.history"
    await kept(path)
    small = History(bytes_max=812)
    saving = KeptHistory(small, path)
    await saving.start()
    await saving.stop()
    assert small.bytes <= 812
    assert small.step_ms > STEP_MS


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw[:-1], "bytes of points, its head says"),
        (lambda raw: raw[:-1] + b"\x00", "points that were changed"),
        (lambda raw: raw.replace(b"step_ms", b"step_xx"), "a head that can't be read"),
        (lambda raw: raw.replace(b'"topic","orders"', b'["topic"], {}'), "a head that can't be"),
        (lambda raw: b"something else", "is of another form"),
        (lambda raw: b"", "is of another form"),
    ],
)
async def test_a_damaged_file_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: object, says: str
) -> None:
    path = tmp_path / "main.history"
    await kept(path)
    assert callable(change)
    raw = change(path.read_bytes())
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=says):
        read(path)
    history = History()
    saving = KeptHistory(history, path)
    with caplog.at_level(logging.WARNING):
        await saving.start()
    assert says in caplog.text
    assert history.bytes == 0
    await saving.stop()
    assert path.with_name("main.history.damaged").read_bytes() == raw
    assert read(path) == (STEP_MS, [])
