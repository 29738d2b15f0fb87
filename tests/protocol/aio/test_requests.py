"""The table of own requests: responses find their waiters, the others learn why there is none."""

import asyncio

import pytest
from aerobee.protocol.aio import requests as module
from aerobee.protocol.aio.requests import Requests, Waiter
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.codec.frame import decode_all, encode_request, encode_response
from aerobee.protocol.command import CODEC_MSGPACK, FLAG_ONEWAY, LANGUAGE, Command, Response

from ...waiting import LONG

CODE, RELAYED = 9001, 9002


class Noted(Waiter, eq=False):
    told: list[object]

    def answered(self, answer: Command) -> None:
        self.told.append(answer.code)

    def failed(self, error: Exception) -> None:
        self.told.append(str(error))


def sent(frame: bytes) -> Command:
    (command,) = decode_all(frame)
    return command


def response(request: Command, code: int = 0) -> Command:
    """What the peer, another aerobee, responds."""
    return sent(b"".join(encode_response(request, Response(code))))


@pytest.fixture
async def requests() -> Requests:
    found = Requests(Scheduler(), upgrade=True, relayed=frozenset([RELAYED]))
    found.address = "10.0.0.1:1"
    return found


async def test_a_response_goes_to_the_waiter_of_its_opaque(requests: Requests) -> None:
    first, one = requests.future(CODE, {"a": "1"}, b"", 5)
    second, other = requests.future(CODE, None, b"body", 5)
    assert len(requests) == 2
    foreign = sent(encode_request(CODE, 0))
    assert requests.without_responses([response(sent(other), 7), foreign]) == [foreign]
    assert (await second).code == 7
    assert not first.done()
    assert requests.without_responses([response(sent(other), 7)]) == []  # nothing waits for it
    requests.without_responses([response(sent(one), 8)])
    assert (await first).code == 8
    assert len(requests) == 0
    assert requests.peer_version > 0


async def test_a_written_header_gets_the_next_opaque(requests: Requests) -> None:
    told: list[object] = []
    frames = [
        requests.frame(Noted(9e9, CODE, told), '{"code":9001,"flag":0,"opaque":', b"x")
        for _ in range(2)
    ]
    found = [sent(frame) for frame in frames]
    assert [(each.opaque, each.body) for each in found] == [(0, b"x"), (1, b"x")]
    requests.without_responses([response(found[1], 5)])
    assert told == [5]


async def test_requests_expire_one_by_one_and_fail_with_their_connection(
    requests: Requests,
) -> None:
    told: list[object] = []
    for deadline in (1.0, 2.0, 3.0):
        requests.frame(Noted(deadline, CODE, told), '{"code":9001,"opaque":', b"")
    assert requests.expire(1.5)
    assert told == ["no answer from 10.0.0.1:1 in time"]
    assert requests.expire(2.0)
    requests.fail("it is gone")
    assert told[2:] == ["it is gone"]
    assert not requests.expire(9.0)


async def test_the_scheduler_notices_a_timeout(requests: Requests) -> None:
    future, _ = requests.future(CODE, None, b"", 0.01)
    async with asyncio.timeout(LONG):
        with pytest.raises(TimeoutError, match=r"no answer from 10\.0\.0\.1:1 in time"):
            await future


async def test_too_many_requests_are_an_error(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    requests.future(CODE, None, b"", 5)
    future, frame = requests.future(CODE, None, b"", 5)
    assert frame == b""
    with pytest.raises(
        ConnectionError, match=r"1 requests to 10\.0\.0\.1:1 wait .* limit is 1; send"
    ):
        await future


async def test_the_codec_becomes_msgpack_unless_the_response_was_relayed(
    requests: Requests,
) -> None:
    assert response(sent(requests.oneway(CODE, None, b""))).language == LANGUAGE
    for code, codec in ((RELAYED, 0), (CODE, CODEC_MSGPACK)):
        _, frame = requests.future(code, None, b"", 5)
        requests.without_responses([response(sent(frame))])
        assert requests.codec == codec
    assert sent(requests.oneway(CODE, {"a": "1"}, b"")).codec == CODEC_MSGPACK


async def test_requests_are_signed_and_a_oneway_request_waits_for_nothing(
    requests: Requests,
) -> None:
    requests.sign = lambda fields, body: {**(fields or {}), "signed": body.decode()}
    _, frame = requests.future(CODE, {"a": "1"}, b"x", 5)
    assert sent(frame).fields() == {"a": "1", "signed": "x"}
    oneway = sent(requests.oneway(CODE, None, b"y"))
    assert (oneway.fields(), oneway.flag & FLAG_ONEWAY) == ({"signed": "y"}, FLAG_ONEWAY)
    assert oneway.opaque == sent(frame).opaque + 1
    assert len(requests) == 1
