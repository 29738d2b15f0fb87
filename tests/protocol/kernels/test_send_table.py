"""The compiled reader of eligible sends reads the sends it takes as the slow path does."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.protocol import codes
from aerobee.protocol.aio.chunks import Chunks, joined
from aerobee.protocol.codec import header_json
from aerobee.protocol.codec.frame import FrameDecoder, encode_request, frame
from aerobee.protocol.headers.send import SendMessage, response_parts, response_template
from aerobee.protocol.kernels.send_table import SendTable
from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch, split_batch
from aerobee.protocol.message.tags import tag_hash
from aerobee.protocol.security.signature import signed, signed_content

BODY_BYTES_MAX = 2_000
DRAWN_BYTES = 3_500  # of an example, less than half of what hypothesis draws for one
EXPECTED = {codes.SEND_MESSAGE_V2: SendMessage, codes.SEND_BATCH_MESSAGE: SendMessage}
TEXT_BYTES_MAX = 32_700
WAITS = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
TEXT = "UNIQ_KEY\x01AC11000100002A9F0001\x02WAIT\x01true\x02TAGS\x01paid\x02"
HEADER = SendMessage("pg", "orders", "TBW102", 4, 3, 0, 1_700_000_000_123, 7, TEXT, 0, False)


def send(body: bytes = b"body", opaque: int = 5, **changes: object) -> bytes:
    fields = HEADER.to_fields()
    for name, value in changes.items():
        fields[name] = str(value)
        if value is None:
            del fields[name]
    return encode_request(codes.SEND_MESSAGE_V2, opaque, fields, body)


def raw(header: str, body: bytes = b"body") -> bytes:
    return frame(header.encode(), 0, body)


@pytest.fixture(scope="module")
def table() -> SendTable:
    return SendTable(response_parts(b"7F00000100002A9F", b"r"))


def batch(entries: list[Entry], opaque: int = 5, *, code: int = 320, **changes: object) -> bytes:
    fields = HEADER.to_fields() | {"m": "true"}
    fields |= {name: str(value) for name, value in changes.items()}
    return encode_request(code, opaque, fields, encode_batch(entries))


def entry(number: int, text: str = "") -> Entry:
    """A message of a batch."""
    return Entry(number, b"body %d" % number, f"TAGS\x01t{number}\x02{text}".encode())


def read(table: SendTable, chunks: list[bytes]) -> None:
    block: Chunks[object] = joined([], chunks)
    table.read(block.data, block.ends, BODY_BYTES_MAX, TEXT_BYTES_MAX)


def parts(table: SendTable) -> list[tuple[object, ...]]:
    """The destinations of the sends just read, with the number of messages and bytes of each."""
    return [(*table.groups[number][:3], *sizes[:2]) for number, *sizes in table.group_totals]


def is_taken(table: SendTable, data: bytes) -> bool:
    read(table, [data])
    return table.consumed is None and table.count > 0


def assert_read_alike(table: SendTable, data: bytes, kept: bytes | None = None) -> None:
    """Asserts that `table` has read these frames as the slow path does.

    `kept`: the frames that `table` took, by default all of `data`.
    """
    decoder = FrameDecoder(header_json.expected(EXPECTED))
    commands = decoder.feed(data if kept is None else kept)
    assert decoder.fault is None
    texts = table.texts.tobytes()
    rows = list(table.sends[: table.count])
    for command in commands:
        header = command.header(SendMessage)
        is_batch = bool(header.batch)
        assert command.code == (codes.SEND_BATCH_MESSAGE if is_batch else codes.SEND_MESSAGE_V2)
        outer = properties.decode(header.properties or "")
        entries = [Entry(header.flag, command.body or b"", (header.properties or "").encode())]
        if is_batch:
            assert not outer.keys() & set(WAITS)
            entries = split_batch(command.body or b"")
        for number, each in enumerate(entries, 1):
            row = rows.pop(0)
            assert row["answered"] == (len(entries) if number == len(entries) else 0)
            assert texts[row["name_at"] : row["name_end"]].decode() == outer["UNIQ_KEY"]
            topic, queue_id, waits, *_ = table.groups[row["group"]]
            assert (topic, queue_id) == (header.topic, header.queue_id)
            assert (row["opaque"], row["oneway"]) == (command.opaque, command.flag)
            assert (row["born_ms"], row["flag"]) == (header.born_ms, each.flag)
            assert (row["sys_flag"], row["times"]) == (header.sys_flag, header.reconsume_times or 0)
            assert data[row["body_at"] : row["body_end"]] == each.body
            ended = each.raw_properties.removesuffix(b"\x02")
            text = texts[row["text_at"] : row["text_end"]]
            assert text == (ended + b"\x02" if ended else b"")
            pairs = properties.decode(text)
            assert texts[row["unique_at"] : row["unique_end"]].decode() == pairs.get("UNIQ_KEY", "")
            assert texts[row["keys_at"] : row["keys_end"]].decode() == pairs.get("KEYS", "")
            assert row["tags"] == tag_hash(pairs.get("TAGS"))
            assert not pairs.keys() & {"TRAN_MSG", "POP_CK", "INNER_NUM", "TIMER_DEL_UNIQKEY"}
            wanted = [f"{name}\x01{value}" for name, value in pairs.items() if name in WAITS]
            assert ([waits] if waits else []) == wanted
    assert not rows


@pytest.mark.parametrize(
    "data",
    [
        send(),
        send(body=b"x" * BODY_BYTES_MAX),
        send(opaque=0),
        send(e=0, f=1, h=-5, j=16),
        send(a=None, c=None, d=None, j=None, k=None),
        send(k="true", l=7, n="broker-a"),
        send(
            i='UNIQ_KEY\x01A1\x02KEYS\x01one two\x02quoted\x01"a\\b/\t\n\r\x02TAGS\x01' + "t" * 300
        ),
        send(i="WAIT\x01false\x02UNIQ_KEY\x010\x02"),
        send().replace(b'"flag":0', b'"flag":2'),
        *(send(i=TEXT + f"{name}\x01123\x02") for name in WAITS),
        *(
            send(i=TEXT + f"{name}\x01123\x02")
            for name in (
                "DELAYED",
                "DEL",
                "TIMER_ROLL_TIMES",
                "TRAN_MSGS",
                "INNER_BASE",
                "POP",
                "W",
            )
        ),
        batch([entry(1)]),
        batch([entry(-1), entry(2, "KEYS\x01a b\x02UNIQ_KEY\x01u-1\x02"), Entry(3, b"x", b"")]),
        batch([Entry(0, b"x" * 300, b"a\x01b\nc"), entry(7)]),
        raw(
            '{"extFields":{"b":"t","e":"1","f":"0","g":"5","h":"0","i":"UNIQ_KEY\\u0001Z\\u0041"},'
            '"flag":0,"opaque":9,"code":310}'
        ),
        raw(
            '{"code":310,"language":"GO","version":317,"opaque":9,"flag":0,"extFields":{"h":"0",'
            '"g":"5","f":"0","e":"1","b":"t","i":"UNIQ_KEY\\u0001Z9\\u0002"}}'
        ),
    ],
)
def test_plain_sends_are_read_as_the_slow_path_reads_them(table: SendTable, data: bytes) -> None:
    assert is_taken(table, data)
    assert_read_alike(table, data)


@pytest.mark.parametrize(
    "data",
    [
        send(body=b""),
        send(body=b"x" * (BODY_BYTES_MAX + 1)),
        send(m="true"),
        send(e="03"),
        send(e="-0"),
        send(e="4000000000"),
        send(g="1e3"),
        send(f=4),
        send(f=16),
        send(b="t\u00f6pic"),
        send(b='to"pic'),
        send(zz="1"),
        send(b=None),
        send(e=None),
        send(g=None),
        send(k="maybe"),
        send(i=None),
        send(i=""),
        send(i="TAGS\x01t\x02"),
        send(i="UNIQ_KEY\x01\x02"),
        send(i="UNIQ_KEY\x01a-b\x02"),
        send(i="UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"),
        send(i=TEXT + "TAGS\x01other\x02"),
        send(i=TEXT + "KEYS\x01a\x02KEYS\x01b\x02"),
        send(i=TEXT + "\x02"),
        send(i=TEXT + "no value\x02"),
        send(i=TEXT + "a\x01b\x01c\x02"),
        send(i=TEXT + "\x01v\x02"),
        send(i=TEXT + "city\x01K\u00f6ln\x02"),
        send(i=TEXT + "x\x01" + "y" * 32_704 + "\x02"),
        *(
            send(i=TEXT + f"{name}\x011\x02")
            for name in (
                "TRAN_MSG",
                "TIMER_DEL_UNIQKEY",
                "TIMER_OUT_MS",
                "POP_CK",
                "INNER_NUM",
                "INNER_MULTI_DISPATCH",
                "__STARTDELIVERTIME",
                "DELAY\x011\x02TIMER_DELAY_MS",
                "DELAY\x011\x02DELAY",
            )
        ),
        send().replace(b'"code":310', b'"code":311'),
        send().replace(b'"flag":0', b'"flag":1'),
        raw('{"code":310,"extFields":{"b":"t","e":"1","f":"0","g":"5","h":"0","i":"x"},"flag":0}'),
        send(i=TEXT + "x"),
        raw('{"code":310,"extFields":{"b":"t"},"opaque":1}'),
        raw("{}"),
        raw("{"),
        raw('{"code":310'),
        raw('{"code":310,"flag":0,"opaque":1}'),
        batch([entry(1)], m="false"),
        batch([entry(1)], code=310),
        batch([entry(1)], i=TEXT + "DELAY\x011\x02"),
        batch([]),
        batch([Entry(0, b"", b"a\x01b\x02")]),
        batch([entry(1), entry(2, "DELAY\x011\x02")]),
        batch([entry(1), entry(2, "a\x01\x02")]),
        batch([entry(1), entry(2, "city\x01K\u00f6ln\x02")]),
        batch([entry(1), entry(2, "TAGS\x01t\x02")]),
        batch([entry(1), Entry(0, b"x" * 1_900, b"")]),
        encode_request(320, 1, HEADER.to_fields() | {"m": "true"}, encode_batch([entry(1)]) + b"x"),
        encode_request(320, 1, HEADER.to_fields() | {"m": "true"}, encode_batch([entry(1)])[:-1]),
        frame(b'{"code":310}', 1, b"body"),
        b"\0\0\0\4\0\0\0\0",
        b"\0\0\0\4\0\xff\xff\xff" + bytes(50),
    ],
)
def test_other_requests_are_left_to_the_slow_path(table: SendTable, data: bytes) -> None:
    assert not is_taken(table, data)
    assert table.count == 0


def test_a_partial_frame_is_left_over(table: SendTable) -> None:
    one, two = send(opaque=1), send(opaque=2)
    for size in range(len(one), len(one) + len(two)):
        read(table, [(one + two)[:size], one])
        assert table.consumed == ([len(one), len(one)] if size > len(one) else None)
        assert table.count == 2


def test_a_chunk_with_another_request_in_it_is_left_as_a_whole(table: SendTable) -> None:
    chunks = [send(opaque=1), send(opaque=2) + send(e="x"), send(opaque=3), b"\0\0\0\4\0\0\0\0"]
    read(table, chunks)
    assert table.consumed == [len(chunks[0]), 0, len(chunks[2]), 0]
    assert table.sends["opaque"][:2].tolist() == [1, 3]
    assert parts(table) == [("orders", 3, "", 2, 2 * (4 + len(TEXT)))]


def test_sends_to_more_queues_than_fit_are_left(table: SendTable) -> None:
    chunks = [send(e=number) for number in range(2_000)]
    read(table, chunks)
    assert table.consumed is not None
    assert 0 < table.count < len(chunks)
    assert (
        [size > 0 for size in table.consumed].count(True) == table.count == len(table.group_totals)
    )


def test_groups_are_kept_and_forgotten_when_they_are_too_many(table: SendTable) -> None:
    for start in range(0, 3_000, 300):
        wanted = [(f"topic-{start + number}", 3, "", 1, 4 + len(TEXT)) for number in range(300)]
        for _ in range(2):
            read(table, [send(b=f"topic-{start + number}") for number in range(300)])
            assert table.consumed is None
            assert sorted(parts(table)) == sorted(wanted)
    assert table.forgot > 3


def test_sends_with_different_delays_are_different_groups(table: SendTable) -> None:
    for waits in ("", "DELAY\x013", "DELAY\x014", "", "DELAY\x013"):
        read(table, [send(i=TEXT + waits)])
        assert [group[:3] for group in parts(table)] == [("orders", 3, waits)]


def test_responses_are_those_of_the_template(table: SendTable) -> None:
    chunks = [send(opaque=1), send(opaque=2).replace(b'"flag":0', b'"flag":2'), send(opaque=3) * 2]
    read(table, chunks)
    table.sends["log_offset"][:4] = [0, 5, 1 << 40, 0xABCDEF]
    table.sends["queue_offset"][:4] = [0, 7, 1_234_567_890_123, 9]
    ends = table.write_responses({}).tolist()
    template = response_template(b"7F00000100002A9F", b"r")
    unique = b"AC11000100002A9F0001"
    wanted = [
        frame(template % (3, unique, 0, 0, 1)),
        frame(template % (3, unique, 1 << 40, 1_234_567_890_123, 3))
        + frame(template % (3, unique, 0xABCDEF, 9, 3)),
    ]
    assert table.answers[: ends[-1]].tobytes() == b"".join(wanted)
    assert ends == [len(wanted[0]), len(wanted[0]), len(wanted[0]) + len(wanted[1])]


def test_responses_say_whether_to_trace() -> None:
    table = SendTable(response_parts(b"7F00000100002A9F", b"r", trace_on=False))
    read(table, [send(opaque=1)])
    table.sends["log_offset"][0] = 5
    table.sends["queue_offset"][0] = 7
    (end,) = table.write_responses({}).tolist()
    template = response_template(b"7F00000100002A9F", b"r", trace_on=False)
    wanted = frame(template % (3, b"AC11000100002A9F0001", 5, 7, 1))
    assert table.answers[:end].tobytes() == wanted


def test_the_response_to_a_batch_has_the_ids_of_all_messages(table: SendTable) -> None:
    read(table, [batch([entry(1), entry(2), entry(3)], opaque=8)])
    table.sends["log_offset"][:3] = [1, 2, 0xABC]
    table.sends["queue_offset"][:3] = [70, 71, 72]
    (end,) = table.write_responses({}).tolist()
    host = b"7F00000100002A9F"
    template = response_template(host + b"%016X," % 1 + host + b"%016X," % 2 + host, b"r")
    wanted = frame(template % (3, b"AC11000100002A9F0001", 0xABC, 70, 8))
    assert table.answers[:end].tobytes() == wanted


class Chance(random.Random):
    """Random choices made from bytes, which hypothesis draws at once and can shrink."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def __repr__(self) -> str:
        return f"Chance({self._data.rstrip(bytes(1))!r} and zeros)"

    def is_left(self) -> bool:
        """Whether there are bytes for another choice."""
        return self._at < len(self._data)

    def getrandbits(self, k: int) -> int:
        start, self._at = self._at, self._at + (k + 7) // 8
        return int.from_bytes(self._data[start : self._at], "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(24) / (1 << 24)


def chances(examples: int) -> Callable[[Callable[[Chance], None]], Callable[[], None]]:
    """A decorator for a test of choices that are enough for about 100 random requests."""
    drawn = given(st.binary(min_size=DRAWN_BYTES, max_size=DRAWN_BYTES).map(Chance))
    return lambda test: settings(max_examples=examples)(drawn(test))


def changed(data: bytes, chance: random.Random) -> bytes:
    """The frame with one or two header bytes changed, removed or inserted; the lengths fit."""
    size = int.from_bytes(data[4:8], "big")
    header, body = bytearray(data[8 : 8 + size]), data[8 + size :]
    if b'"m":"true"' in header and chance.random() < 0.5:
        broken = bytearray(body)
        broken[chance.randrange(len(broken))] = chance.choice((0, 1, 2, 9, 0x80, 0xFF))
        return frame(bytes(header), 0, bytes(broken))
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(len(header))
        new = chance.choice(b'"\\{}:,[]0123456789-+.eE abimnuxKTDU\x01\x02\x1f\x7f\xc3\xb6')
        kind = chance.randrange(4)
        if kind == 0:
            header[at] = new
        elif kind == 1:
            header.insert(at, new)
        elif kind == 2:
            del header[at : at + chance.choice((1, 1, 4, 12))]
        else:
            other = chance.randrange(len(header))
            header[at:at] = header[other : other + chance.randrange(30)]
    return frame(bytes(header), 0, body)


def as_signed(data: bytes, chance: random.Random) -> bytes:
    """The same request, signed by one of two users, its fields in random order."""
    (command,) = FrameDecoder(header_json.NOTHING_EXPECTED).feed(data)
    body = command.body or b""
    fields = signed(command.fields(), body, chance.choice(("shop", "another")), "secret")
    if chance.random() < 0.3:
        fields = dict(chance.sample(sorted(fields.items()), len(fields)))
    return encode_request(command.code, command.opaque, fields, body)


def assert_signed_alike(table: SendTable, data: bytes, kept: bytes | None = None) -> None:
    """Asserts that the signed content of these frames is what `Access.check` compares."""
    rows = table.signed.tolist()
    ends = [0]
    for command in FrameDecoder(header_json.NOTHING_EXPECTED).feed(data if kept is None else kept):
        _, group, at, end, name_at, name_end, signature_at, signature_end = rows.pop(0)
        fields = command.fields()
        assert data[signature_at:signature_end].decode() == fields.pop("Signature")
        assert data[name_at:name_end].decode() == fields["AccessKey"]
        content = signed_content(fields, command.body or b"")
        assert table.contents[at:end].tobytes() == content
        assert table.groups[group].topic == fields["b"]
        assert table.groups[group].is_batch == (command.code == codes.SEND_BATCH_MESSAGE)
        assert at == ends.pop()
        ends.append(end)
    assert not rows


def odd(chance: random.Random) -> bytes:
    """A send with some unusual values."""
    make: list[Callable[[], dict[str, Any]]] = [
        lambda: {"e": chance.choice((0, 1, -1, 65_536, "+1", "1.0", " 1"))},
        lambda: {"h": chance.choice((0, -1, (1 << 31) - 1, -(1 << 31)))},
        lambda: {"f": chance.choice((0, 1, 2, 0x103, 8, 4, 12))},
        lambda: {
            "i": TEXT + chance.choice(("KEYS\x01a b\x02", "k\x01", "DELAY\x011\x02", "x", *WAITS))
        },
        lambda: {"b": chance.choice(("t", "%RETRY%g", "a" * 200))},
        dict,
    ]
    if chance.random() < 0.3:
        entries = [entry(number, chance.choice(("", "k\x01v", "x"))) for number in range(2)]
        return batch(entries, **chance.choice(make)())
    return send(body=chance.randbytes(chance.randrange(0, 40)), **chance.choice(make)())


def test_random_sends_that_are_taken_are_read_alike(table: SendTable) -> None:
    made = taken = 0

    @chances(300)
    def read_alike(chance: Chance) -> None:
        nonlocal made, taken
        while chance.is_left():
            data = changed(odd(chance), chance) if chance.random() < 0.9 else odd(chance)
            made += 1
            if is_taken(table, data):
                taken += 1
                assert_read_alike(table, data)

    read_alike()
    assert (made > 25_000, taken > 3_000) == (True, True), (made, taken)


def alike(chance: random.Random) -> list[bytes]:
    """Some sends, the later ones with most fields of the first; some of them are changed."""
    others = [
        send(
            body=chance.randbytes(chance.randrange(1, 9)),
            opaque=chance.choice((7, 42, 99)),
            e=chance.choice((0, 1, 3, 12)),
            g=chance.choice((1_700_000_000_123, 1_800_000_000_456, 5)),
            i=chance.choice((TEXT, TEXT.replace("9F", "A0"), TEXT.replace("T", "t"))),
            h=chance.choice((7, 7, 8)),
        )
        for _ in range(chance.randrange(1, 5))
    ]
    first = odd(chance) if chance.random() < 0.3 else send(opaque=chance.randrange(100))
    return [first, *(changed(each, chance) if chance.random() < 0.3 else each for each in others)]


def read_in_chunks(table: SendTable, frames: list[bytes]) -> Iterator[bytes]:
    """Reads the frames as one chunk, then as one chunk each; yields what `table` took of them."""
    for data in ([b"".join(frames)], frames):
        read(table, data)
        sizes = table.consumed or list(map(len, data))
        yield b"".join(each[:size] for each, size in zip(data, sizes, strict=True))


def test_a_send_that_resembles_the_previous_one_is_read_alike(table: SendTable) -> None:
    taken = 0

    @chances(200)
    def read_alike(chance: Chance) -> None:
        nonlocal taken
        while chance.is_left():
            frames = alike(chance)
            for kept in read_in_chunks(table, frames):
                taken += table.count
                assert_read_alike(table, b"".join(frames), kept)

    read_alike()
    assert taken > 30_000, taken


@pytest.fixture(scope="module")
def guarded() -> SendTable:
    """A reader of signed requests only."""
    return SendTable(response_parts(b"7F00000100002A9F", b"r"), is_guarded=True)


def test_a_request_without_a_signature_is_left_to_the_slow_path(guarded: SendTable) -> None:
    fields = signed(HEADER.to_fields(), b"body", "shop", "secret")
    assert is_taken(guarded, encode_request(codes.SEND_MESSAGE_V2, 1, fields, b"body"))
    for name in ("AccessKey", "Signature"):
        left = {key: value for key, value in fields.items() if key != name}
        assert not is_taken(guarded, encode_request(codes.SEND_MESSAGE_V2, 1, left, b"body"))
        assert not len(guarded.signed)
    assert not is_taken(guarded, send())


def test_a_signed_request_with_an_additional_field_is_left_to_the_slow_path(
    guarded: SendTable,
) -> None:
    for name in ("SecurityToken", "_UNIQUE_KEY_QUERY", "o", "AccessKez", "signature"):
        fields = signed(HEADER.to_fields() | {name: "1"}, b"body", "shop", "secret")
        assert not is_taken(guarded, encode_request(codes.SEND_MESSAGE_V2, 1, fields, b"body"))


def test_random_signed_sends_are_read_alike(guarded: SendTable) -> None:
    taken = 0

    @chances(120)
    def read_alike(chance: Chance) -> None:
        nonlocal taken
        while chance.is_left():
            frames = [
                as_signed(odd(chance) if chance.random() < 0.3 else send(opaque=5), chance)
                for _ in range(chance.randrange(1, 5))
            ]
            frames = [changed(each, chance) if chance.random() < 0.3 else each for each in frames]
            whole = b"".join(frames)
            for kept in read_in_chunks(guarded, frames):
                taken += len(guarded.signed)
                assert_read_alike(guarded, whole, kept)
                if kept == whole:
                    assert_signed_alike(guarded, kept)

    read_alike()
    assert taken > 8_000, taken
