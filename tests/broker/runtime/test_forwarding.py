"""Requests that a broker forwards to another: the time that it waits."""

import asyncio

import pytest
from aerobee.broker.runtime.forwarding import Forwarding
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol import codes
from aerobee.protocol.errors import Refusal
from aerobee.protocol.headers.offsets import QueueAddress


async def test_forward_timeout_limits_the_wait_for_a_silent_server() -> None:
    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, one: writers.append(one), "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    forwarding = Forwarding(BrokerConfig(namesrv_addr=address, forward_timeout=500))
    with pytest.raises(Refusal) as refused:
        await forwarding.request("a", codes.GET_MAX_OFFSET, QueueAddress("orders", 0))
    assert f"no answer from {address} to request " in refused.value.remark
    assert " within 0.5 s; try again later" in refused.value.remark
    await forwarding.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    silent.close()
    await silent.wait_closed()
