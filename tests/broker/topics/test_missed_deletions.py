"""Topics that were deleted in a group of brokers while one of them was away."""

from pathlib import Path

import pytest
from aerobee.broker.topics import missed_deletions
from aerobee.broker.topics.missed_deletions import MissedDeletions
from aerobee.protocol import codes
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.message.record import decode_all

from ..conftest import Caller, Config, Run


async def bodies(caller: Caller, topic: str) -> list[bytes]:
    return [one.body for one in decode_all((await caller.pull(topic)).body or b"")]


async def test_a_broker_deletes_them_once_before_it_serves(run: Run, config: Config) -> None:
    settings = config()
    broker, caller = await run(settings)
    await caller.heartbeat(group="g")
    for topic in ("deleted", "kept"):
        assert (await caller.send(topic, b"before")).code == codes.SUCCESS
        offset = UpdateConsumerOffset("g", topic, 0, 1)
        assert (await caller.ask(codes.UPDATE_CONSUMER_OFFSET, offset)).code == codes.SUCCESS
    await broker.stop()
    missed = MissedDeletions(settings.store_dir)
    missed.add("deleted")
    missed.add("never-there")
    assert missed.topics() == ["deleted", "never-there"]

    broker, caller = await run(settings)
    assert missed.topics() == []
    assert (broker.topics.get("deleted"), broker.topics.get("kept") is None) == (None, False)
    assert await bodies(caller, "kept") == [b"before"]
    assert list(broker.offsets.groups_of("deleted")) == []
    assert list(broker.offsets.groups_of("kept")) == ["g"]
    assert (await caller.send("deleted", b"again")).code == codes.SUCCESS
    await broker.stop()

    _, caller = await run(settings)  # what came since is kept
    assert await bodies(caller, "deleted") == [b"again"]


def test_their_number_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_deletions, "TOPICS_MAX", 2)
    missed = MissedDeletions(tmp_path)
    for topic in ("one", "two"):
        missed.add(topic)
    with pytest.raises(OSError, match="has 2 topics, the limit is 2"):
        missed.add("three")
    missed.done("one")
    missed.add("three")
    assert missed.topics() == ["three", "two"]
