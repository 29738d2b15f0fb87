"""Frames against the bytes that the real classes made, and against malformed bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol import codes
from aerobee.protocol.codec.frame import (
    FRAME_BYTES_MAX,
    HEAD,
    HEADS,
    FrameDecoder,
    encode_request,
    encode_response,
)
from aerobee.protocol.codec.header_json import expected
from aerobee.protocol.command import FLAG_RESPONSE, Command, Response
from aerobee.protocol.errors import Refusal
from aerobee.protocol.headers.offsets import QueryConsumerOffset
from aerobee.protocol.headers.pull import PullMessage
from aerobee.protocol.headers.send import (
    SendMessage,
    SendMessageResponse,
    response_template,
    send_response,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "frames.json").read_text())
# One vector is a header that makes Java's own reader fail: an unknown language.
UNKNOWN_LANGUAGE = next(v for v in GOLDEN if isinstance(v["decoded"], str))
GOLDEN.remove(UNKNOWN_LANGUAGE)
NAMES = [vector["name"] for vector in GOLDEN]
WHOLE = [bytes.fromhex(vector["hex"]) for vector in GOLDEN]


def seen(command: Command) -> tuple[object, ...]:
    return (
        command.code,
        command.opaque,
        command.flag,
        command.version,
        command.remark,
        command.fields(),
        command.body,
    )


@pytest.mark.parametrize("vector", GOLDEN, ids=NAMES)
def test_every_frame_of_the_real_classes_reads_as_java_reads_it(vector: dict[str, Any]) -> None:
    decoder = FrameDecoder()
    (command,) = decoder.feed(bytes.fromhex(vector["hex"]))
    wanted = vector["decoded"]
    body = bytes.fromhex(wanted["body_hex"]) if wanted["body_hex"] else None
    assert decoder.fault is None
    assert seen(command) == (
        wanted["code"],
        wanted["opaque"],
        wanted["flag"],
        wanted["version"],
        wanted["remark"],
        {k: v for k, v in (wanted["extFields"] or {}).items() if v is not None},
        body,
    )


def test_a_language_that_java_does_not_know_is_no_reason_to_refuse_a_client() -> None:
    (command,) = FrameDecoder().feed(bytes.fromhex(UNKNOWN_LANGUAGE["hex"]))
    assert (command.code, command.opaque, command.language) == (34, 9, "NO_SUCH")


def test_commands_are_the_same_however_the_bytes_are_cut() -> None:
    stream = b"".join(WHOLE)
    whole = [seen(command) for command in FrameDecoder().feed(stream)]
    assert len(whole) == len(WHOLE)
    for size in (1, 3, 7, 64, 1000):
        decoder = FrameDecoder()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        got = [seen(command) for piece in pieces for command in decoder.feed(piece)]
        assert got == whole, size


def test_what_is_written_is_what_java_writes() -> None:
    checked = 0
    for vector, data in zip(GOLDEN, WHOLE, strict=True):
        wanted = vector["decoded"]
        if wanted["language"] != "JAVA" or wanted["flag"] & 1 or "lenient" in vector["name"]:
            continue
        codec = 1 if wanted["codec"] == "ROCKETMQ" else 0
        (command,) = FrameDecoder().feed(data)
        ours = encode_request(
            command.code,
            command.opaque,
            command.fields() or None,
            command.body or b"",
            oneway=command.is_oneway,
            codec=codec,
            version=command.version,
            language="JAVA",
        )
        (again,) = FrameDecoder().feed(ours)
        assert seen(again) == seen(command), vector["name"]
        if len(command.fields()) <= 1:  # one field has only one order
            assert ours == data, vector["name"]
            checked += 1
    assert checked > 0


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (HEAD.pack(0, 0), "can't hold"),
        (HEAD.pack(-5, 0), "can't hold"),
        (HEAD.pack(3, 0), "can't hold"),
        (HEAD.pack(FRAME_BYTES_MAX - 3, 10), "over the limit"),
        (HEAD.pack(0x7FFFFFFF, 10), "over the limit"),
        (HEAD.pack(10, 7) + b"x" * 6, "can't hold"),
        (HEAD.pack(6, 2 << 24 | 2) + b"{}", "codec 2 is unknown"),
        (HEAD.pack(6, 9 << 24 | 2) + b"{}", "codec 9"),
        (HEAD.pack(6, 2) + b"[]", "not an object"),
        (HEAD.pack(7, 3) + b"\xff\xfe\xfd", "not JSON"),
        (HEAD.pack(18, 14) + b'{"remark":"\xff"}', "not JSON"),
        (HEAD.pack(20, 16) + b'{"opaque":1e400}', "opaque is inf, not a number"),
        (HEAD.pack(0, 0)[:4], "a frame of 0 bytes"),
        (HEAD.pack(-1, 0)[:5], "a frame of -1 bytes"),
        (b"SSH-", "over the limit"),
        (b"GET / HTTP/1.1\r\n", "a frame of 1195725860 bytes is over the limit"),
        (b"POST", "over the limit of 16777216; it begins with b'POST', which is HTTP"),
        (b"HTTP", "it begins with b'HTTP', which is HTTP: one of the two has the wrong port"),
        (b"\x16\x03\x01\x02\x00\x01", "it begins as TLS does (22, 3), which is not spoken here"),
        (HEAD.pack(6, 1 << 24 | 2) + b"xx", "binary header"),
        (HEAD.pack(4 + 8000, 8000) + b'{"extFields":' + b"[" * 7987, ""),
    ],
)
def test_bytes_that_are_no_frame_are_a_fault_and_not_a_crash(data: bytes, word: str) -> None:
    decoder = FrameDecoder()
    good = encode_request(105, 7, {"topic": "T"})
    assert [command.opaque for command in decoder.feed(good + data)] == [7]
    assert decoder.fault is not None
    assert word in str(decoder.fault)
    assert decoder.feed(good) == []


def test_a_frame_of_just_the_largest_size_is_taken() -> None:
    body = b"x" * (FRAME_BYTES_MAX - HEAD.size - 2)
    data = HEAD.pack(4 + 2 + len(body), 2) + b"{}" + body
    (command,) = FrameDecoder().feed(data)
    assert command.body == body


@pytest.mark.parametrize("codec", [0, 1])
def test_an_answer_comes_back_in_the_codec_of_its_request(codec: int) -> None:
    fields = {"topic": "Zürich", "n": "1"}
    data = encode_request(105, 9, fields, b"body", codec=codec)
    (request,) = FrameDecoder().feed(data)
    assert (request.codec, request.fields(), request.body) == (codec, fields, b"body")
    reply = Response(codes.TOPIC_NOT_EXIST, {"a": "b"}, "nö", [b"one", b"two"])
    (answer,) = FrameDecoder().feed(b"".join(encode_response(request, reply)))
    assert (answer.codec, answer.code, answer.opaque, answer.flag) == (codec, 17, 9, FLAG_RESPONSE)
    assert (answer.fields(), answer.remark, answer.body) == ({"a": "b"}, "nö", b"onetwo")


@pytest.mark.parametrize("codec", [0, 1])
def test_a_send_answer_says_the_same_in_every_codec(codec: int) -> None:
    request = Command(code=310, opaque=3, codec=codec)
    for unique in (b"0A0102030001", 'é"\\'.encode()):
        made = send_response(request, 2, unique, b"C0A8", 26, b"DefaultRegion", 77)
        data = made if isinstance(made, bytes) else b"".join(encode_response(request, made))
        (answer,) = FrameDecoder().feed(data)
        header = answer.header(SendMessageResponse)
        assert (header.msg_id, header.queue_id, header.queue_offset) == (
            "C0A8000000000000001A",
            2,
            77,
        )
        assert (header.transaction_id, header.region) == (unique.decode(), "DefaultRegion")
        assert (answer.opaque, answer.code, answer.flag) == (3, 0, FLAG_RESPONSE)


def test_the_template_of_an_answer_comes_to_the_same_bytes() -> None:
    request = Command(code=310, opaque=31)
    values = (3, b"0A01", 1 << 33, 77)
    queue_id, unique, log_offset, queue_offset = values
    header = response_template(b"C0A8", b"50%d") % (*values, request.opaque)
    made = send_response(request, queue_id, unique, b"C0A8", log_offset, b"50%d", queue_offset)
    assert HEADS[len(header)] + header == made
    header = response_template(b"C0A8", b"50%d", trace_on=False) % (*values, request.opaque)
    assert b'"TRACE_ON":"false"' in header
    made = send_response(
        request, queue_id, unique, b"C0A8", log_offset, b"50%d", queue_offset, trace_on=False
    )
    assert HEADS[len(header)] + header == made


def test_the_template_of_an_answer_with_a_handle_comes_to_the_same_bytes() -> None:
    request = Command(code=310, opaque=31)
    header = response_template(b"C0A8", b"50%d", with_handle=True) % (
        b"djE_=", 3, b"0A01", 1 << 33, 77, 31,
    )  # fmt: skip
    made = send_response(request, 3, b"0A01", b"C0A8", 1 << 33, b"50%d", 77, "djE_=")
    assert HEADS[len(header)] + header == made


def read(kind: type, ext: str) -> object:
    header = f'{{"code":11,"extFields":{ext},"opaque":1}}'.encode()
    (command,) = FrameDecoder().feed(HEAD.pack(4 + len(header), len(header)) + header)
    return command.header(kind)


def test_headers_are_read_as_loosely_as_java_reads_them() -> None:
    ext = '{"consumerGroup":5,"topic":"T","queueId":3,"setZeroIfNotFound":"FALSE"}'
    header = read(QueryConsumerOffset, ext)
    assert header == QueryConsumerOffset("5", "T", 3, False)
    odd = '{"consumerGroup":"g","topic":"T","queueId":"3","setZeroIfNotFound":"yes","new":"x"}'
    assert read(QueryConsumerOffset, odd) == QueryConsumerOffset("g", "T", 3, False)
    for number in ("+3", "003", "\u0663"):
        as_java = f'{{"consumerGroup":"g","topic":"T","queueId":"{number}"}}'
        assert read(QueryConsumerOffset, as_java) == QueryConsumerOffset("g", "T", 3)
    nothing_but = '{"consumerGroup":"g","topic":"T","queueId":"0","queueOffset":"1",'
    nothing_but += '"maxMsgNums":"32","sysFlag":"4"}'
    assert read(PullMessage, nothing_but) == PullMessage("g", "T", 0, 1, 32, 4, 0, 0, 0)


@pytest.mark.parametrize(
    ("ext", "word"),
    [
        ('{"consumerGroup":"g","topic":"T"}', "queueId"),
        ('{"consumerGroup":"g","topic":"T","queueId":"three"}', "queueId"),
        ('{"consumerGroup":"g","topic":"T","queueId":"99999999999"}', "queueId"),
        ('{"consumerGroup":"g","topic":"T","queueId":"1_000"}', "queueId"),
        ('{"consumerGroup":"g","topic":"T","queueId":" 1"}', "queueId"),
        (f'{{"consumerGroup":"g","topic":"T","queueId":"+{"9" * 5000}"}}', "queueId"),
        ("null", "consumerGroup"),
    ],
)
def test_a_missing_or_ill_typed_field_is_refused_by_its_name(ext: str, word: str) -> None:
    with pytest.raises(Refusal, match=word) as caught:
        read(QueryConsumerOffset, ext)
    assert caught.value.code == codes.SYSTEM_ERROR


def test_fields_that_are_no_utf_8_are_refused_with_the_name_of_the_request() -> None:
    header = b'{"code":14,"extFields":{"consumerGroup":"\xff","topic":"T","queueId":"0"}}'
    (command,) = FrameDecoder().feed(HEAD.pack(4 + len(header), len(header)) + header)
    with pytest.raises(Refusal, match=r"QUERY_CONSUMER_OFFSET .* can't be read") as caught:
        command.header(QueryConsumerOffset)
    assert caught.value.code == codes.SYSTEM_ERROR


def test_headers_survive_the_way_to_the_wire_and_back() -> None:
    sent = SendMessage("g", "T", "TBW102", 4, 1, 0, 1700, 0, "A\x01b\x02", batch=True)
    fields = sent.to_fields()
    assert fields["m"] == "true"
    assert "j" not in fields
    (command,) = FrameDecoder().feed(encode_request(310, 1, fields))
    assert command.header(SendMessage) == sent
    pull = PullMessage("g", "T", 0, 5, 32, 2, 0, 15000, 0)
    (command,) = FrameDecoder().feed(encode_request(11, 1, pull.to_fields(), codec=1))
    assert command.header(PullMessage) == pull


def test_a_header_that_is_expected_reads_as_any_other() -> None:
    ext = '"a":"g","b":"T","c":"TBW102","d":4,"e":"1","f":"0","g":"5","h":"0","i":"é"'
    wanted = SendMessage("g", "T", "TBW102", 4, 1, 0, 5, 0, "é")
    for text in (
        f'{{"code":310,"extFields":{{{ext}}},"opaque":1}}',  # as clients write it
        f'{{"extFields":{{{ext}}},"opaque":1,"code":310}}',  # in another order
        f'{{ "code":310,"extFields":{{{ext}}},"opaque":1}}',
        f'{{"code":11,"extFields":{{{ext}}},"opaque":1,"code":310}}',  # the last code counts
        f'{{"code":310,"extFields":{{{ext},"k":"odd","new":true}},"opaque":1}}',
    ):
        header = text.encode()
        decoder = FrameDecoder(expected({310: SendMessage, 11: PullMessage}))
        (command,) = decoder.feed(HEAD.pack(4 + len(header), len(header)) + header)
        found = command.header(SendMessage)
        found.unit_mode = None
        assert (command.code, command.opaque, found) == (310, 1, wanted)
        assert command.fields()["b"] == "T"


def test_another_header_than_expected_is_still_read() -> None:
    header = b'{"code":310,"extFields":{"consumerGroup":"g","topic":"T","queueId":"1"},"code":14}'
    (command,) = FrameDecoder(expected({310: SendMessage})).feed(
        HEAD.pack(4 + len(header), len(header)) + header
    )
    assert command.header(QueryConsumerOffset) == QueryConsumerOffset("g", "T", 1)
    with pytest.raises(Refusal, match="`b`"):
        command.header(SendMessage)
