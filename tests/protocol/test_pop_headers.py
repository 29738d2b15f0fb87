"""The answer of a pop, which is written from a template for most clients."""

import pytest
from aerobee.protocol.codec.frame import FrameDecoder, encode_response
from aerobee.protocol.command import CODEC_JSON, CODEC_ROCKETMQ, FLAG_RESPONSE, Command
from aerobee.protocol.headers.pop import PopMessageResponse, popped_response

ANSWER = PopMessageResponse(1_700_000_000_123, 60_000, 3, 7, "0 2 10;1 0 5", "0 2 10,11;1 0 5")
IN_ORDER = PopMessageResponse(1_700_000_000_123, 60_000, 999, 0, "0 2 10", "0 2 10", "0 2 0")


@pytest.mark.parametrize("answer", [ANSWER, IN_ORDER], ids=["any-order", "in-order"])
@pytest.mark.parametrize("codec", [CODEC_JSON, CODEC_ROCKETMQ])
def test_a_pop_answer_says_the_same_in_every_codec(codec: int, answer: PopMessageResponse) -> None:
    request = Command(200_050, opaque=77, codec=codec)
    made = popped_response(request, answer, [b"rec", memoryview(b"ords")], 7)
    frame = made if isinstance(made, bytes) else b"".join(encode_response(request, made))
    (read,) = FrameDecoder().feed(frame)
    assert (read.code, read.opaque, read.remark, read.body) == (0, 77, "FOUND", b"records")
    assert read.flag == FLAG_RESPONSE
    assert read.header(PopMessageResponse) == answer
    assert read.fields() == answer.to_fields()
