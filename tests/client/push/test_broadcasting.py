"""Broadcasting: every member gets every queue, offsets are in a file, failed messages are
dropped."""

import os
from pathlib import Path

import pytest
from aerobee.client import Consumer
from aerobee.client.errors import ClientError
from aerobee.protocol import codes
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.headers.pull import COMMIT_OFFSET

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf


def member(fake: FakeCluster, folder: Path, client_id: str | None = "me") -> Consumer:
    return Consumer(
        fake.address,
        group="g",
        topics=["orders"],
        model="broadcasting",
        start="earliest",
        client_id=client_id,
        offsets_folder=folder,
    )


def text_of(path: Path) -> str:
    """The file, "" when there is none."""
    return path.read_text() if path.exists() else ""


async def test_every_member_has_every_queue_and_tells_so(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path
) -> None:
    fake.topics["orders"] = 4
    fake.broker.members.add("another")
    async with member(fake, tmp_path) as consumer:
        await until(lambda: len(consumer.queues) == 4)
    assert not fake.broker.requests[codes.GET_CONSUMER_LIST_BY_GROUP]
    beat = HeartbeatData.decode(fake.broker.requests[codes.HEART_BEAT][0].body)
    (data,) = beat.consumer_data_set
    assert data.message_model == "BROADCASTING"
    assert [each.topic for each in data.subscription_data_set] == ["orders"]  # no retry topic


async def test_a_member_goes_on_where_its_file_says(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake, tmp_path) as consumer:
        for _ in range(2):
            message = await consumer.receive(LONG)
            assert message is not None
            await message.ack()
    assert not shelf.committed
    assert not fake.broker.requests[codes.QUERY_CONSUMER_OFFSET]
    async with member(fake, tmp_path) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        assert message.body == b"2"
    assert not any(pull.sys_flag & COMMIT_OFFSET for pull in shelf.pulls)


async def test_the_file_is_written_every_5_seconds_and_at_the_end(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    path = tmp_path / "me" / "g" / "offsets.json"
    async with member(fake, tmp_path) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.ack()
        assert text_of(path) == ""
        await clock.advance(11)  # the first time after 10 s, then every 5
        await until(lambda: text_of(path) != "")
        second = await consumer.receive(LONG)
        assert second is not None
        await second.ack()
        await clock.advance(6)
        await until(lambda: ":2}" in text_of(path))
        shelf.put("orders", 0, b"2")
        third = await consumer.receive(LONG)
        assert third is not None
        await third.ack()
    assert ":3}" in text_of(path)


async def test_what_fails_is_logged_and_dropped(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake, tmp_path) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack()
        assert list(consumer.offsets_of("orders").values()) == [1]
    assert not shelf.backs
    assert not fake.broker.sent
    assert "BROADCASTING, consuming" in caplog.text


async def test_the_client_id_stays_the_same_so_that_the_file_is_found(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path
) -> None:
    for _ in range(2):
        async with member(fake, tmp_path, None):
            pass
    beats = fake.broker.requests[codes.HEART_BEAT]
    ids = {HeartbeatData.decode(beat.body).client_id for beat in beats}
    (client_id,) = ids
    assert client_id.endswith("@DEFAULT")


async def test_a_second_member_in_this_process_needs_an_instance_name(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path
) -> None:
    async with member(fake, tmp_path):
        with pytest.raises(ClientError, match="client id me already; give each its own instance"):
            async with member(fake, tmp_path):
                pass
        async with member(fake, tmp_path, "other"):
            pass
    async with member(fake, tmp_path):  # the first has left
        pass


async def test_damaged_offsets_stop_the_start_with_what_to_do(
    fake: FakeCluster, shelf: Shelf, tmp_path: Path
) -> None:
    folder = tmp_path / "me" / "g"
    os.makedirs(folder)
    for name in ("offsets.json", "offsets.json.bak"):
        (folder / name).write_text("{{{")
    consumer = member(fake, tmp_path)
    with pytest.raises(ClientError, match="repair one of the files, or remove both"):
        await consumer.start()
    await consumer.close()
