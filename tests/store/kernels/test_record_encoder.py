"""The compiled engine stores eligible sends with the same bytes as the interpreted one."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.protocol import codes
from aerobee.protocol.codec.frame import encode_request
from aerobee.protocol.headers.send import SendMessage, response_parts
from aerobee.protocol.kernels.send_table import SendTable
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.record import BORN_HOST_V6, STORE_HOST_V6, decode_record
from aerobee.protocol.message.tags import raw_tags_code
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Batch, Message
from aerobee.store.engine.store import MessageStore
from aerobee.store.kernels.record_encoder import RecordDestination, RecordEncoder

from ...clocks import Clock

SIZES = StoreSettings(
    segment_bytes=64 << 10, queue_file_bytes=20 * 200, index_slots=16, index_entries=400
)  # with room for all messages of a test
TOPICS = ("orders", "t" * 130)  # the records of the second one have version 2
QUEUES = 2  # of a topic
SUFFIX = b"TRACE_ON\x01true\x02"  # of all properties
LOCAL_V4 = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
LOCAL_V6 = bytes(15) + bytes([1, 0, 0, 0x2A, 0x9F])
hosts = some.one_of(some.binary(min_size=8, max_size=8), some.binary(min_size=20, max_size=20))


class Request(NamedTuple):
    """A send of one message, or of a batch."""

    topic: str
    queue_id: int
    sys_flag: int
    flag: int
    times: int
    bodies: list[bytes]
    text: str
    is_batch: bool


requests = some.builds(
    Request,
    some.sampled_from(TOPICS),
    some.integers(0, QUEUES - 1),
    some.sampled_from((0, 1, 0x103)),
    some.integers(-(1 << 31) + 1, (1 << 31) - 1),
    some.integers(0, 16),
    some.lists(some.binary(min_size=1, max_size=60), min_size=1, max_size=4),
    some.sampled_from(("", "TAGS\x01paid\x02", "KEYS\x01a b\x02", "TAGS\x01x\x02KEYS\x01k\x02")),
    some.booleans(),
)
chunks = some.lists(some.tuples(hosts, some.lists(requests, max_size=5)), min_size=1, max_size=6)


def properties(number: int, text: str) -> str:
    return f"UNIQ_KEY\x01AC11{number:08X}\x02{text}"


def frame(number: int, request: Request) -> bytes:
    header = SendMessage(
        "pg",
        request.topic,
        "TBW102",
        QUEUES,
        request.queue_id,
        request.sys_flag,
        5_000,
        request.flag,
        properties(number, request.text),
        request.times,
        False,
        batch=request.is_batch,
    )
    if request.is_batch:
        return encode_request(codes.SEND_BATCH_MESSAGE, 1, header.to_fields(), batch(request))
    return encode_request(codes.SEND_MESSAGE_V2, 1, header.to_fields(), request.bodies[0])


def batch(request: Request) -> bytes:
    text = request.text.encode()
    return encode_batch([Entry(request.flag, body, text) for body in request.bodies])


def store_one_by_one(
    store: MessageStore, all_chunks: Sequence[tuple[bytes, Sequence[Request]]]
) -> None:
    number = count()
    for host, wanted in all_chunks:
        for request in wanted:
            key, text = (request.topic, request.queue_id), properties(next(number), request.text)
            if request.is_batch:
                body = batch(request)
                wanted_batch = Batch(key, request.sys_flag, 5_000, host, body, request.times)
                store.put_batch(wanted_batch, SUFFIX)
                continue
            raw = text.encode() + SUFFIX
            code = raw_tags_code(raw)
            store.put(
                Message(
                    key,
                    request.flag,
                    request.sys_flag,
                    5_000,
                    host,
                    request.bodies[0],
                    raw,
                    code,
                    request.times,
                )
            )


def store_at_once(
    store: MessageStore, all_chunks: Sequence[tuple[bytes, Sequence[Request]]]
) -> None:
    number = count()
    data, ends = b"", []
    for _, wanted in all_chunks:
        data += b"".join(frame(next(number), request) for request in wanted)
        ends.append(len(data))
    table, maker = SendTable(response_parts(b"", b"")), RecordEncoder()
    table.read(data, ends, 10_000, 1_000)
    if table.count == 0:
        return
    assert table.consumed is None, "a request was not eligible"
    destinations = []
    for part in table.group_totals:
        group = table.groups[part[0]]
        queue = store.eligible_queue((group.topic, group.queue_id))
        assert queue is not None
        destinations.append(RecordDestination(queue, SUFFIX))
    assert store.put_table(table, destinations, [host for host, _ in all_chunks], maker)


def files(folder: Path) -> dict[str, bytes]:
    """The files that hold messages, entries or keys, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("commitlog", "consumequeue", "index")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("local", [LOCAL_V4, LOCAL_V6], ids=["store host v4", "store host v6"])
@settings(max_examples=100)
@given(all_chunks=chunks)
def test_both_engines_write_the_same_files_for_hosts_of_ipv4_and_ipv6(
    local: bytes, all_chunks: list[tuple[bytes, list[Request]]]
) -> None:
    found = []
    for store_all in (store_one_by_one, store_at_once):
        with TemporaryDirectory() as folder:
            store = MessageStore(Path(folder), SIZES, local, Clock())
            store.open()
            for topic in TOPICS:  # makes the queues
                for queue_id in range(QUEUES):
                    store.put(Message((topic, queue_id), 0, 0, 0, LOCAL_V4, b"first", b"", 0))
            store_all(store, all_chunks)
            store.close()
            found.append(files(Path(folder)))
    assert found[0] == found[1]


def test_the_flags_of_a_record_say_which_hosts_are_ipv6(tmp_path: Path) -> None:
    for number, (local, flag) in enumerate(((LOCAL_V4, 0), (LOCAL_V6, STORE_HOST_V6))):
        store = MessageStore(tmp_path / str(number), SIZES, local, Clock())
        store.open()
        store.put(Message(("orders", 0), 0, 0, 0, LOCAL_V4, b"first", b"", 0))
        request = Request("orders", 0, 0, 0, 0, [b"body"], "", False)
        store_at_once(store, [(LOCAL_V4, [request]), (LOCAL_V6, [request, request])])
        store.write_staged()
        [records] = store.get("orders", 0, 1, 9, 5_000).records
        at, flags = 0, []
        while at < len(records):
            record = decode_record(records, at)
            assert (record.body, record.store_host) == (b"body", local)
            flags.append((record.sys_flag, record.born_host))
            at += record.size
        assert flags == [(flag, LOCAL_V4), *[(flag | BORN_HOST_V6, LOCAL_V6)] * 2]
        store.close()
