"""Access control of a controller: what needs a signature, and how it signs its notices."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aerobee.conf.sources import ConfigError
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.security.signature import is_signed, signed

from .test_server import Member

ADMIN, OWN = ("admin", "the-admins-password"), ("inner", "the-controllers-password")
ON: dict[str, Any] = {
    "authentication_enabled": True,
    "init_authentication_user": json.dumps({"username": ADMIN[0], "password": ADMIN[1]}),
    "inner_client_authentication_credentials": json.dumps(
        {"accessKey": OWN[0], "secretKey": OWN[1]}
    ),
}
Start = Callable[..., Awaitable[Controller]]
Ask = Callable[[Controller, tuple[str, str] | None, int], Awaitable[int]]
OPEN_TO_ALL = {
    codes.CONTROLLER_GET_METADATA_INFO,
    codes.CONTROLLER_GET_REPLICA_INFO,
    codes.CONTROLLER_GET_SYNC_STATE_DATA,
}


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as exits:

        async def begin(**settings: Any) -> Controller:
            folder = str(tmp_path / "state")
            config = ControllerConfig(listen_port=0, controller_store_path=folder, **settings)
            controller = Controller(config)
            await controller.start()
            exits.push_async_callback(controller.stop)
            return controller

        yield begin


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Asks as a user, or without a signature; gives the code of the answer."""
    async with AsyncExitStack() as exits:

        async def answer(controller: Controller, user: tuple[str, str] | None, code: int) -> int:
            sign = None if user is None else lambda fields, body: signed(fields, body, *user)
            peers = Peers(sign=sign)
            exits.push_async_callback(peers.close)
            return (await peers.request(controller.address, code, timeout_s=20)).code

        yield answer


async def test_only_reads_of_the_members_need_no_signature(start: Start, ask: Ask) -> None:
    controller = await start(**ON)
    served = {row.code for row in controller._handlers.rows()}
    unsigned = {one for one in served if await ask(controller, None, one) != codes.NO_PERMISSION}
    assert unsigned == OPEN_TO_ALL
    for user in (ADMIN, OWN):
        assert await ask(controller, user, codes.GET_CONTROLLER_CONFIG) == codes.SUCCESS
    for wrong in ((ADMIN[0], OWN[1]), ("nobody", ADMIN[1])):
        code = await ask(controller, wrong, codes.GET_CONTROLLER_CONFIG)
        assert code == codes.NO_PERMISSION
    assert controller.guard is not None
    assert controller.guard.refusals.count == len(served - OPEN_TO_ALL) + 2


async def test_no_password_is_told(start: Start) -> None:
    controller = await start(**ON)
    told = controller.config.to_properties()
    assert "authenticationEnabled=true" in told
    for _, password in (ADMIN, OWN):
        assert password not in told


async def test_what_it_tells_a_broker_is_signed(start: Start) -> None:
    controller = await start(**ON)
    seen: list[dict[str, str]] = []

    class Broker(Member):
        def on(self, header: Any, command: Any, _: Any) -> Any:
            seen.append({**command.fields(), "body": command.body.decode()})
            assert is_signed(command.fields(), command.body, command.version, OWN[1])
            return super().on(header, command, _)

    broker = Broker(controller, 1)
    broker.peers = Peers(sign=lambda fields, body: signed(fields, body, *ADMIN))
    try:
        await broker.start()
        await broker.join()
        await broker.elect()
        await broker.told.get()
    finally:
        await broker.peers.close()
        await broker.server.stop()
    assert seen[0]["AccessKey"] == OWN[0]


@pytest.mark.parametrize(
    "key", ["init_authentication_user", "inner_client_authentication_credentials"]
)
def test_odd_json_is_refused_without_its_value(key: str) -> None:
    with pytest.raises(ConfigError, match="its value is not shown") as found:
        ControllerConfig(**{key: '{"password":"secret-word"}'})  # type: ignore[arg-type]
    assert "secret-word" not in str(found.value)


async def test_the_level_of_the_log_changes_while_it_runs(start: Start) -> None:
    controller = await start()
    peers = Peers()
    logger = logging.getLogger("aerobee.controller.journal")
    try:
        for text, level in (("aerobee.controller.journal=debug", logging.DEBUG), ("", 0)):
            body = f"logLevel={text}".encode()
            code = codes.UPDATE_CONTROLLER_CONFIG
            answer = await peers.request(controller.address, code, None, body, timeout_s=20)
            assert answer.code == codes.SUCCESS, answer.remark
            assert logger.level == level
    finally:
        await peers.close()
