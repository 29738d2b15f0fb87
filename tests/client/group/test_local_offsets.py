"""The offset file of a broadcasting group: path, format, .bak, and damaged files."""

import os
from pathlib import Path

import pytest
from aerobee.client.errors import ClientError
from aerobee.client.group.local_offsets import LocalOffsetStore
from aerobee.client.group.offsets import ReadFrom
from aerobee.protocol.bodies.body import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 1)
ODD = MessageQueue("%RETRY%a|b-c_d", "broker@room#1", 7)


async def stored(folder: Path, *offsets: int) -> LocalOffsetStore:
    """A store whose file was written with each of these offsets in turn."""
    store = LocalOffsetStore("10.0.0.1@DEFAULT", "g", folder)
    for offset in offsets:
        store.update(QUEUE, offset)
        await store.persist(QUEUE)
    return store


async def read(folder: Path) -> int:
    """What a consumer that starts now finds."""
    store = LocalOffsetStore("10.0.0.1@DEFAULT", "g", folder)
    await store.load()
    return store.in_memory(QUEUE)


async def test_the_file_lies_below_the_client_id_and_the_group(tmp_path: Path) -> None:
    store = await stored(tmp_path, 5)
    assert store.path == tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    home = LocalOffsetStore("10.0.0.1@DEFAULT", "g").path
    beyond = ".rocketmq_offsets/10.0.0.1@DEFAULT/g/offsets.json"
    assert str(home) == f"{os.environ['HOME']}/{beyond}"
    # Keys are objects without quotes: what fastjson writes in Java, and what it expects.
    text = '{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:5}}'
    assert store.path.read_text() == text


async def test_what_java_wrote_is_read(tmp_path: Path) -> None:
    store = LocalOffsetStore("me", "g", tmp_path)
    os.makedirs(store.path.parent)
    store.path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":1,\n\t\t'
        '"topic":"orders"\n\t}:42,{\n\t\t"brokerName":"b","queueId":0,"topic":"t"\n\t}:7\n\t}\n}'
    )
    await store.load()
    assert store.clone() == {QUEUE: 42, MessageQueue("t", "b", 0): 7}


async def test_many_queues_and_odd_names_come_back(tmp_path: Path) -> None:
    wanted = {MessageQueue(f"t{at % 7}", f"b{at % 3}", at): at * 10 for at in range(500)}
    wanted[ODD] = 1 << 40
    store = LocalOffsetStore("me", "g", tmp_path)
    for queue, offset in wanted.items():
        store.update(queue, offset)
    await store.persist_all(wanted)
    again = LocalOffsetStore("me", "g", tmp_path)
    await again.load()
    assert again.clone() == wanted


async def test_the_text_before_is_kept_as_bak(tmp_path: Path) -> None:
    store = await stored(tmp_path, 5, 6)
    assert ":6}" in store.path.read_text()
    assert ":5}" in store.path.with_name("offsets.json.bak").read_text()
    assert sorted(os.listdir(store.path.parent)) == ["offsets.json", "offsets.json.bak"]


@pytest.mark.parametrize("damage", [None, b"", b"  \n", b'{"offsetTable":{{"bro', b"\xff\xfe"])
async def test_a_damaged_or_missing_file_falls_back_to_its_bak(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    store = await stored(tmp_path, 5, 6)
    if damage is None:
        store.path.unlink()
    else:
        store.path.write_bytes(damage)
    assert await read(tmp_path) == 5
    assert ("going on with" in caplog.text) == (damage is not None)
    await stored(tmp_path, 7)  # and a good .bak isn't overwritten by the damaged file
    assert ":5}" in store.path.with_name("offsets.json.bak").read_text()
    assert await read(tmp_path) == 7


async def test_two_damaged_files_are_an_error_that_names_both(tmp_path: Path) -> None:
    store = await stored(tmp_path, 5, 6)
    backup = store.path.with_name("offsets.json.bak")
    store.path.write_bytes(b"{")
    backup.write_bytes(b"[")
    with pytest.raises(ClientError, match=r"offsets\.json is damaged.*\.bak is damaged.*repair"):
        await read(tmp_path)
    backup.unlink()
    with pytest.raises(ClientError, match=r"is damaged.*there is no .*\.bak; repair"):
        await read(tmp_path)


async def test_a_damaged_file_is_not_overwritten_when_there_is_no_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await stored(tmp_path, 5)
    store.path.write_bytes(b"{")
    store.update(QUEUE, 6)
    await store.persist(QUEUE)
    assert "are not persisted yet" in caplog.text
    assert store.path.read_bytes() == b"{"


async def test_without_any_file_there_is_no_offset(tmp_path: Path) -> None:
    assert await read(tmp_path) == -1
    store = LocalOffsetStore("me", "g", tmp_path)
    assert await store.read(QUEUE, ReadFrom.MEMORY_THEN_STORE) == -1


async def test_a_folder_that_can_not_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "me").write_bytes(b"a file in the way")
    store = LocalOffsetStore("me", "g", tmp_path)
    store.update(QUEUE, 1)
    await store.persist(QUEUE)
    assert "are not persisted yet" in caplog.text


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClientError, match="can't be the name of a folder"):
        LocalOffsetStore(name, "g", tmp_path)
