"""What the audit log of a broker or name server has, through requests over a connection."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.audit import LINES_PER_SECOND, AuditLog, open_audit_log
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.headers.namesrv import GetRoute, KVConfigItem

ADMIN = '{"username": "admin", "password": "topsecret-1"}'


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    found = Peers()
    yield found
    await found.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_changes_are_noted_and_questions_are_not(tmp_path: Path, peers: Peers) -> None:
    path = tmp_path / "audit.jsonl"
    server = NameServer(NamesrvConfig(listen_port=0, audit_log=str(path)))
    await server.start()
    try:
        item = KVConfigItem("space", "key", "hidden value")
        await peers.request(server.address, codes.PUT_KV_CONFIG, item)
        await peers.request(server.address, codes.GET_ROUTEINFO_BY_TOPIC, GetRoute("T"))
        path.rename(tmp_path / "audit.1")
        await peers.request(server.address, codes.PUT_KV_CONFIG, item)
    finally:
        await server.stop()
    for each in (path, tmp_path / "audit.1"):
        (line,) = lines(each)
        assert (line["request"], line["result"], line["user"]) == ("PUT_KV_CONFIG", "allowed", "")
        assert line["fields"] == {"namespace": "space", "key": "key"}
        assert line["from"].startswith("127.0.0.1:")
        assert each.stat().st_mode & 0o777 == 0o600
        assert "hidden" not in each.read_text()


async def test_a_refusal_is_noted_once_with_its_reason(tmp_path: Path, peers: Peers) -> None:
    path = tmp_path / "audit.jsonl"
    config = NamesrvConfig(
        listen_port=0, audit_log=str(path), authentication_enabled=True,
        init_authentication_user=ADMIN,
    )  # fmt: skip
    server = NameServer(config)
    await server.start()
    try:
        item = KVConfigItem("space", "key", "value")
        answer = await peers.request(server.address, codes.PUT_KV_CONFIG, item)
        assert answer.code == codes.NO_PERMISSION
    finally:
        await server.stop()
    (line,) = lines(path)
    assert line["result"] == "refused"
    assert "AccessKey" in line["remark"]


def test_a_file_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"auditLog: .*none/audit can't be written.*give a file"):
        open_audit_log(str(tmp_path / "none" / "audit"), "b")


def test_lines_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    path, now = tmp_path / "audit", [1_000.5]
    audit = AuditLog(path, "b", lambda: now[0])
    command = Command(codes.PUT_KV_CONFIG)
    for _ in range(LINES_PER_SECOND + 7):
        audit.refused(command, "127.0.0.1:1", "no")
    now[0] += 1
    audit.refused(command, "127.0.0.1:1", "no")
    found = lines(path)
    assert len(found) == LINES_PER_SECOND + 1
    assert found[-1]["left out"] == 7
    assert found[-1]["time"] == "1970-01-01T00:16:41.500+00:00"
