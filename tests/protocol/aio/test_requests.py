"""The table of own requests: responses find their waiters, the others learn why there is none."""

import asyncio
from collections.abc import Callable

import pytest
from aerobee.protocol.aio import requests as module
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.aio.requests import Requests, Waiter
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.codec.frame import decode_all, encode_request, encode_response
from aerobee.protocol.command import FLAG_ONEWAY, Command, Response

from ...waiting import LONG

CODE = 9001


Sent = Callable[[], Command]


class Noted(Waiter, eq=False):
    told: list[object]

    def answered(self, answer: Command) -> None:
        self.told.append(answer.code)

    def failed(self, error: Exception) -> None:
        self.told.append(str(error))


class Wire(asyncio.Transport):
    """A transport to 10.0.0.1:1."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})

    def is_closing(self) -> bool:
        return False


def decoded(frame: bytes | memoryview) -> Command:
    (command,) = decode_all(bytes(frame))
    return command


def response(request: Command, code: int = 0) -> Command:
    """What the peer, another aerobee, responds."""
    return decoded(b"".join(encode_response(request, Response(code))))


@pytest.fixture
async def connection() -> Connection:
    found = Connection(Scheduler(), {})
    found.connection_made(Wire())
    return found


@pytest.fixture
def requests(connection: Connection) -> Requests:
    return connection.requests


@pytest.fixture
def sent(connection: Connection) -> Sent:
    """The request that is written next."""
    return lambda: decoded(connection.transport.out.pop(0))


async def test_a_response_goes_to_the_waiter_of_its_opaque(requests: Requests, sent: Sent) -> None:
    first = requests.request(CODE, {"a": "1"}, b"", 5)
    second = requests.request(CODE, None, b"body", 5)
    one, other = sent(), sent()
    assert len(requests) == 2
    foreign = decoded(encode_request(CODE, 0))
    assert requests.without_responses([response(other, 7), foreign]) == [foreign]
    assert (await second).code == 7
    assert not first.done()
    assert requests.without_responses([response(other, 7)]) == []  # nothing waits for it
    requests.without_responses([response(one, 8)])
    assert (await first).code == 8
    assert len(requests) == 0
    assert requests.peer_version > 0


async def test_a_written_header_gets_the_next_opaque(requests: Requests, sent: Sent) -> None:
    told: list[object] = []
    for _ in range(2):
        requests.send_prepared(Noted(9e9, told), '{"code":9001,"flag":0,"opaque":', b"x")
    found = [sent(), sent()]
    assert [(each.opaque, each.body) for each in found] == [(0, b"x"), (1, b"x")]
    requests.without_responses([response(found[1], 5)])
    assert told == [5]


async def test_requests_expire_one_by_one_and_fail_with_their_connection(
    requests: Requests,
) -> None:
    told: list[object] = []
    for deadline in (1.0, 2.0, 3.0):
        requests.send_prepared(Noted(deadline, told), '{"code":9001,"opaque":', b"")
    assert requests.expire(1.5)
    assert told == ["no answer from 10.0.0.1:1 in time"]
    assert requests.expire(2.0)
    requests.fail("it is gone")
    assert told[2:] == ["it is gone"]
    assert not requests.expire(9.0)


async def test_the_scheduler_notices_a_timeout(requests: Requests) -> None:
    future = requests.request(CODE, None, b"", 0.01)
    async with asyncio.timeout(LONG):
        with pytest.raises(TimeoutError, match=r"no answer from 10\.0\.0\.1:1 in time"):
            await future


async def test_too_many_requests_are_an_error(
    requests: Requests, monkeypatch: pytest.MonkeyPatch, sent: Sent, connection: Connection
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    requests.request(CODE, None, b"", 5)
    sent()
    future = requests.request(CODE, None, b"", 5)
    assert not connection.transport.out
    with pytest.raises(
        ConnectionError, match=r"1 requests to 10\.0\.0\.1:1 wait .* limit is 1; send"
    ):
        await future


async def test_requests_are_signed_and_a_oneway_request_waits_for_nothing(
    requests: Requests, sent: Sent
) -> None:
    requests.sign = lambda fields, body: {**(fields or {}), "signed": body.decode()}
    requests.request(CODE, {"a": "1"}, b"x", 5)
    requests.oneway(CODE, None, b"y")
    request, oneway = sent(), sent()
    assert request.fields() == {"a": "1", "signed": "x"}
    assert (oneway.fields(), oneway.flag & FLAG_ONEWAY) == ({"signed": "y"}, FLAG_ONEWAY)
    assert oneway.opaque == request.opaque + 1
    assert len(requests) == 1
