"""Name servers and controllers that serve anyone, as `aerobee doctor` finds them."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.client.base.security import Security
from aerobee.console.findings.open_servers import CONTROLLER, NAME_SERVER, of_open_servers
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer

USER = json.dumps({"username": "admin", "password": "the-admins-password"})
EVERYWHERE = "0.0.0.0"
CLOSED: dict[str, Any] = {"authentication_enabled": True, "init_authentication_user": USER}


def server(kind: str, folder: Path, **settings: Any) -> NameServer | Controller:
    if kind == NAME_SERVER:
        return NameServer(NamesrvConfig(listen_port=0, **settings))
    state = str(folder / "state")
    return Controller(ControllerConfig(listen_port=0, controller_store_path=state, **settings))


@pytest.mark.parametrize("kind", [NAME_SERVER, CONTROLLER])
@pytest.mark.parametrize(
    ("settings", "is_found"),
    [
        ({"bind_address": EVERYWHERE}, True),
        ({"bind_address": EVERYWHERE, **CLOSED}, False),
        ({"bind_address": "127.0.0.1"}, False),
    ],
    ids=["open", "closed", "loopback"],
)
async def test_what_serves_anyone_is_found(
    tmp_path: Path, kind: str, settings: dict[str, Any], *, is_found: bool
) -> None:
    ours = server(kind, tmp_path, **settings)
    await ours.start()
    try:
        address = f"127.0.0.1:{ours.port}"
        # An administrator's own signature would open a closed one.
        security = Security("admin", "the-admins-password")
        found = await of_open_servers(kind, [address, address], security)
    finally:
        await ours.stop()
    assert [one.where for one in found] == ([f"{kind} {address}"] if is_found else [])
    assert all("0.0.0.0 without access control" in one.what for one in found)


async def test_one_that_does_not_answer_is_no_finding_here() -> None:
    assert await of_open_servers(NAME_SERVER, ["127.0.0.1:1"], Security()) == []
