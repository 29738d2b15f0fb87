"""Messages of every kind for a store, and all that a store says about itself.

The same plan is put by the real Java classes (StoreJudge.java) and by ours, and both report in one
form, so that the reports can be compared as they are. As a program it puts a plan and then ends
itself by SIGKILL: `store_plan.py FOLDER SETTINGS OUT`, where OUT gets the report from before.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.compression import KINDS, compress, decompress
from aerobee.protocol.message.message_id import offset_message_id
from aerobee.protocol.message.record import (
    COMPRESSED,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    decode_record,
)
from aerobee.protocol.message.tags import raw_tags_code
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Batch
from aerobee.store.engine.messages import Message as StoreMessage
from aerobee.store.engine.store import MessageStore

Message = dict[str, Any]
Report = dict[str, Any]

LOG_FILE_BYTES = 64 << 10
SIZES = {
    "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    "mappedFileSizeConsumeQueue": 320,
    "maxHashSlotNum": 16,
    "maxIndexNum": 48,
}
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
HOST_V6 = bytes(15) + b"\x01" + HOST[4:]
BORN_HOST = bytes([10, 1, 2, 3, 0, 0, 0xD4, 0x31])
BORN_HOST_V6 = bytes.fromhex("fd00000000000000000000001234567800001092")
LONG_TOPIC = "%RETRY%" + "L" * 140  # its records are of version 2
BATCH_SHARED = {"CLUSTER": "c"}
RECORD_BYTES_MIN = 91  # without body, topic and properties
END_OF_TIME = (1 << 63) - 1


def settings_of(wanted: dict[str, Any]) -> StoreSettings:
    """Our settings for what StoreJudge reads."""
    return StoreSettings(
        segment_bytes=wanted["mappedFileSizeCommitLog"],
        queue_file_bytes=wanted["mappedFileSizeConsumeQueue"],
        index_slots=wanted["maxHashSlotNum"],
        index_entries=wanted["maxIndexNum"],
        sync_flush=wanted.get("sync", False),
        append_crc=wanted.get("enabledAppendPropCRC", False),
        queue_sync_ms=0,
    )


def message(topic: str, queue: int = 0, body: bytes = b"", **more: Any) -> Message:
    """A message of a plan; `pairs` are its properties."""
    pairs = more.pop("pairs", {})
    return {
        "topic": topic,
        "queue": queue,
        "body": body.hex(),
        "properties": properties.encode(pairs).decode(),
        "flag": 0,
        "sysFlag": 0,
        "born": 1_700_000_000_123,
        "bornHost": BORN_HOST.hex(),
        "storeHost": HOST.hex(),
        "reconsumeTimes": 0,
        "prepared": 0,
        "batch": False,
    } | more


def make_plan(folder: Path, settings: dict[str, Any]) -> tuple[list[Message], list[str]]:
    """Messages of every kind, and the keys to look for as `topic#key`.

    They are put into a store in `folder` meanwhile, to know which end the files of the log.
    """
    chance = random.Random(4)
    plan = []
    for number in range(12):
        pairs = {"TAGS": f"Tag{number % 3}", "KEYS": f"key{number} shared", "color": "red"}
        pairs["UNIQ_KEY"] = f"7F000001000100000000{number:012X}"
        more = {"flag": number, "reconsumeTimes": number % 3, "pairs": pairs}
        plan.append(message("A", number % 2, b"hello-%d" % number, **more))
    plan += [
        message("A", 0, b"neither tags nor keys"),
        message("A", 1, b"", pairs={"TAGS": "TagEmpty", "KEYS": "  two  spaces "}),
        message(
            "A", 0, "你好 \U0001f600".encode(), pairs={"TAGS": "标签\U0001f600", "KEYS": "键1 键2"}
        ),
    ]
    plan += [
        message("SCHEDULE_TOPIC_XXXX", min(level, 18) - 1, b"later", pairs={
            "DELAY": str(level), "REAL_TOPIC": "A", "REAL_QID": "1", "KEYS": f"kd{level}",
        })
        for level in (1, 3, 18)
    ]  # fmt: skip
    for name, kind in KINDS.items():
        packed = compress(b"compressible " * 500, 5, kind)
        pairs = {"TAGS": "TagZ", "KEYS": f"k{name}"}
        plan.append(message("A", 0, packed, sysFlag=COMPRESSED | kind, pairs=pairs))
    plan += [
        message("B", 0, b"v6 born", bornHost=BORN_HOST_V6.hex(), pairs={"KEYS": "k6"}),
        message("B", 0, b"v6", bornHost=BORN_HOST_V6.hex(), storeHost=HOST_V6.hex()),
        message(
            "B", 0, b"half", sysFlag=TRANSACTION_PREPARED, pairs={"KEYS": "kt", "UNIQ_KEY": "U1"}
        ),
        message("B", 0, b"whole", sysFlag=TRANSACTION_COMMIT, prepared=77, pairs={"KEYS": "kt"}),
        message("B", 0, b"gone", sysFlag=TRANSACTION_ROLLBACK, pairs={"KEYS": "krollback"}),
        message(LONG_TOPIC, 0, b"version 2", pairs={"TAGS": "TagL", "KEYS": "kl"}),
    ]
    for host in (BORN_HOST, BORN_HOST_V6):
        inner = [
            Entry(number, b"inner %d" % number, properties.encode(
                {"TAGS": f"TagB{number}", "KEYS": f"kb{number}", "UNIQ_KEY": f"B{number}"}
            ))
            for number in range(5)
        ]  # fmt: skip
        inner.append(Entry(9, b"", b""))
        plan.append(message("B", 1, encode_batch(inner), bornHost=host.hex(), batch=True,
                            pairs=BATCH_SHARED))  # fmt: skip
    plan += [
        message("C", number % 3, chance.randbytes(chance.randrange(6_000)),
                pairs={"KEYS": f"big{number}", "TAGS": "Big"})
        for number in range(60)
    ]  # fmt: skip
    store = opened(folder, settings, lambda: 1)
    put_all(store, plan)
    fixed = RECORD_BYTES_MIN + len("C") + (20 if settings.get("enabledAppendPropCRC") else 0)
    room = -store.log_end % LOG_FILE_BYTES
    first = b"first of its file"
    plan += [
        message("C", 0, bytes(room - fixed - 8)),  # leaves room for a blank record and no more
        message("C", 0, first),
        message("C", 0, bytes(LOG_FILE_BYTES - fixed - len(first) - fixed - 7)),  # a byte too many
    ]
    put_all(store, plan[-3:])
    assert store.log_end % LOG_FILE_BYTES == LOG_FILE_BYTES - fixed - len(first) - 7
    store.close()
    plan += [
        message(
            "A", 0, b"tail-%d" % number, pairs={"TAGS": f"Tag{number % 3}", "KEYS": f"t{number}"}
        )
        for number in range(20)
    ]
    keys = [
        "A#shared",
        "A#key3",
        "A#7F000001000100000000000000000004",
        "A#two",
        "A#spaces",
        "A#键1",
    ]
    keys += ["B#kt", "B#krollback", "B#U1", "B#kb2", "B#B4", "B#k6", f"{LONG_TOPIC}#kl", "A#absent"]
    keys += ["A#klz4", "C#big0", "C#big59", "A#t19", "SCHEDULE_TOPIC_XXXX#kd3"]
    return plan, keys


def opened(folder: Path, settings: dict[str, Any], now_ms: Callable[[], int]) -> MessageStore:
    """Our store in this folder."""
    store = MessageStore(folder, settings_of(settings), HOST, now_ms)
    store.open()
    return store


def put_all(store: MessageStore, plan: list[Message]) -> list[tuple[int, int]]:
    """Put the messages of a plan; the place in the log and the queue offset of each."""
    places = []
    for each in plan:
        store.state.host = bytes.fromhex(each["storeHost"])
        born = each["born"], bytes.fromhex(each["bornHost"])
        body, raw = bytes.fromhex(each["body"]), each["properties"].encode()
        if each["batch"]:
            offset, found, _ = store.put_batch(
                Batch(
                    (each["topic"], each["queue"]), each["sysFlag"], *born, body,
                    each["reconsumeTimes"],
                ),
                raw,
            )  # fmt: skip
            places.append((found[0], offset))
        else:
            place, offset, _ = store.put(
                StoreMessage(
                    (each["topic"], each["queue"]), each["flag"], each["sysFlag"], *born, body, raw,
                    raw_tags_code(raw), each["reconsumeTimes"], each["prepared"],
                ),
            )  # fmt: skip
            places.append((place, offset))
        store.write_staged()
    return places


def sync(store: MessageStore) -> None:
    """Wait until the disk has all of it."""
    needed = store.sync_plan()
    assert needed is not None
    needed.run()
    store.synced(needed)


def report(store: MessageStore, keys: list[str]) -> Report:
    """All that StoreJudge reports, from our store."""
    return {
        "min": store.log_start,
        "max": store.log_end,
        "messages": [_fields(place, data) for place, data in _records(store)],
        "queues": {
            f"{topic}@{queue}": _queue(store, topic, queue)
            for topic, queues in store.topics().items()
            for queue in queues
        },
        "keys": {
            name: [
                decode_record(data).log_offset
                for data in store.query(*name.split("#", 1), 0, END_OF_TIME)
            ]
            for name in keys
        },
    }


def _records(store: MessageStore) -> list[tuple[int, bytes]]:
    found = []
    place = store.log_start
    while place < store.log_end:
        data = store.message_at(place)
        if data is None:
            place += -place % LOG_FILE_BYTES  # a blank record ends the file
        else:
            found.append((place, data))
            place += len(data)
    return found


def _fields(place: int, data: bytes) -> dict[str, Any]:
    record = decode_record(data)
    return {
        "place": place,
        "sha1": hashlib.sha1(data).hexdigest(),
        "id": offset_message_id(record.store_host, place),
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "born": record.born_ms,
        "bornHost": record.born_host.hex(),
        "stored": record.store_ms,
        "storeHost": record.store_host.hex(),
        "reconsumeTimes": record.reconsume_times,
        "prepared": record.prepared_offset,
        "body": hashlib.sha1(decompress(record.body, record.sys_flag)).hexdigest(),
        "properties": record.properties,
    }


def _queue(store: MessageStore, topic: str, queue: int) -> dict[str, Any]:
    least, end = store.min_offset(topic, queue), store.max_offset(topic, queue)
    moments = [
        stored + nearby
        for offset in range(least, end, 3)
        for stored in [store.store_ms_at(topic, queue, offset)]
        for nearby in (-1, 0, 1)
    ]
    return {
        "min": least,
        "max": end,
        "entries": [list(entry) for entry in store.entries(topic, queue, least, end - least)],
        "earliest": store.earliest_store_ms(topic, queue),
        "times": [
            [
                moment,
                store.offset_at(topic, queue, moment),
                store.offset_at(topic, queue, moment, upper=True),
            ]
            for moment in moments
        ],
    }


def main(folder: str, settings_file: str, out: str) -> None:
    """Put a plan, report, and die without any end."""
    settings = json.loads(Path(settings_file).read_text())
    clock = iter(range(1_700_000_000_000, 1 << 62, 3))
    store = opened(Path(folder), settings, lambda: next(clock))
    plan = settings["plan"]
    put_all(store, plan[: len(plan) // 2])
    sync(store)
    store.save_checkpoint()
    put_all(store, plan[len(plan) // 2 :])
    Path(out).write_text(json.dumps(report(store, settings["keys"])))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
