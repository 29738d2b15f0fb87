"""`aerobee init --secure`: a name server and a broker that serve no client without the secrets."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import grpc.aio
import pytest
from aerobee.scripts.init import secure
from aerobee.scripts.output.command_error import CommandError

from ...proxy.access.test_access import sign
from ...proxy.support import Client, code_of, resource
from ...secret_files import write_secret
from ...waiting import PROCESS
from ..command import SMALL, aerobee, output, refused, running

QUICK = ("--set", "compiledSends=false")  # a start without numba


def variables(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


async def route_codes(address: str, folder: Path, password: str) -> list[str]:
    """How a proxy answers a call with a wrong password, and one with the administrator's."""
    trusted = grpc.ssl_channel_credentials((folder / "authority.pem").read_bytes())
    found = []
    async with grpc.aio.secure_channel(address, trusted) as channel:
        for each in ("not-the-password", password):
            client = Client(channel, "c")
            sign(client, secure.ADMIN, each)
            found.append(code_of(await client.call("QueryRoute", topic=resource("greetings"))))
    return found


def test_what_it_writes_runs_and_serves_only_those_who_have_the_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "secured"
    said = output("init", "--secure", str(folder))
    assert f"aerobee broker -c {folder}/broker.yaml" in said
    ports = ["--set", "listenPort=0", "--set", "httpPort=0"]
    names = ["namesrv", "-c", str(folder / "namesrv.yaml"), *ports]
    with ExitStack() as stack, running(tmp_path / "n", *names) as name_server:
        broker = ["broker", "-c", str(folder / "broker.yaml"), "-n", name_server.namesrv]
        with running(tmp_path / "b", *broker, *ports, *SMALL, *QUICK) as daemon:
            client = variables(folder / "client.env")
            words = ["pub", "greetings", "-n", name_server.namesrv]
            done = aerobee(*words, data="hello\n", env=client)
            assert done.returncode == 0, done.stderr
            words[0] = "sub"
            done = aerobee(*words, "--from", "earliest", "--count", "1", env=client)
            assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr

            words = ["pub", "greetings", "-n", name_server.namesrv]
            for lacking in client:
                env = {name: value for name, value in client.items() if name != lacking}
                assert aerobee(*words, data="no\n", env=env).returncode, f"without {lacking}"
            wrong = client | {"AEROBEE_SECRET_KEY": "not-the-password"}
            assert aerobee(*words, data="no\n", env=wrong).returncode

            proxy = ["proxy", "-c", str(folder / "proxy.yaml"), "-n", name_server.namesrv]
            proxy += ["--listen-port", "0", "--set", "httpPort=0"]
            grpc = stack.enter_context(running(tmp_path / "p", *proxy))
            address = grpc.ready.partition("ready on ")[2].partition(",")[0]
            seen = aerobee("doctor", "--grpc", address, "-n", name_server.namesrv, env=client)
            assert f"proxy {address}" not in seen.stdout, seen.stdout
            assert asyncio.run(route_codes(address, folder, client["AEROBEE_SECRET_KEY"])) == [
                "UNAUTHORIZED",
                "OK",
            ]

            token = (folder / "http.token").read_text().strip()
            for page in (name_server.page, daemon.page, grpc.page):
                with pytest.raises(HTTPError, match="401"):
                    urlopen(page + "metrics", timeout=PROCESS)
                headers = {"Authorization": f"Bearer {token}"}
                request = Request(page + "metrics", headers=headers)
                with urlopen(request, timeout=PROCESS) as answer:
                    assert b"aerobee" in answer.read()


def test_a_broker_joins_the_controller_and_nobody_elects_without_the_password(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "secured"
    secure.write(folder, secure.HOSTS, {})
    ports = ["--set", "listenPort=0", "--set", "httpPort=0"]
    audit = folder / "audit.jsonl"
    words = ["controller", "-c", str(folder / "controller.yaml"), *ports]
    with running(tmp_path / "c", *words, "--set", f"auditLog={audit}") as controller:
        address = controller.ready.partition("ready on ")[2].partition(",")[0]
        joined = ["enableControllerMode=true", f"controllerAddr={address}", "brokerName=b"]
        broker = ["broker", "-c", str(folder / "broker.yaml"), "--set", "namesrvAddr="]
        broker += [word for each in joined for word in ("--set", each)]
        with running(tmp_path / "b", *broker, *ports, *SMALL, *QUICK):
            client = variables(folder / "client.env")
            elect = ["controller", "rebuild", "b", "-a", address, "--elect", "1"]
            assert "is still alive" in aerobee(*elect, env=client).stderr
            only_tls = {"AEROBEE_TLS_CA": client["AEROBEE_TLS_CA"]}
            done = aerobee(*elect, env=only_tls)
            assert "no AccessKey" in done.stderr, done.stderr
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    refused = [(one["user"], one["request"]) for one in lines if one["result"] == "refused"]
    assert refused == [("", "CONTROLLER_ELECT_MASTER")]
    allowed = {one["request"] for one in lines if one["result"] == "allowed"}
    assert {"CONTROLLER_APPLY_BROKER_ID", "CONTROLLER_ELECT_MASTER"} <= allowed


def test_only_the_owner_can_read_it_and_nothing_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "secured"
    secure.write(folder, secure.HOSTS, {})
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "exists already" in refused("init", "--secure", str(folder))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    secure.write(tmp_path / "other", secure.HOSTS, {})
    for name in ("http.token", "replication.secret", "client.env", "authority.pem"):
        assert (tmp_path / "other" / name).read_bytes() != (folder / name).read_bytes()


def test_no_secret_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "secured"
    said = output("init", "--secure", str(folder))
    words = ["broker", "-c", str(folder / "broker.yaml"), "--print-config"]
    said += output(*words) + output(*words, "json")
    password = variables(folder / "client.env")["AEROBEE_SECRET_KEY"]
    for secret in (password, *((folder / name).read_text().strip() for name in SECRETS)):
        assert secret not in said


SECRETS = ("http.token", "replication.secret")


def test_a_certificate_that_is_given_is_used(tmp_path: Path) -> None:
    given = {}
    for name in secure.GIVEN:
        given[name] = str(tmp_path / f"{name}.pem")
        write_secret(Path(given[name]), name.encode())
    secure.write(tmp_path / "secured", secure.HOSTS, dict(given))
    assert not list((tmp_path / "secured").glob("*.pem"))
    text = (tmp_path / "secured" / "broker.yaml").read_text()
    found = dict(re.findall(r'^(\w+): "(.*)"$', text, re.MULTILINE))
    assert found["tlsServerCertPath"] == given["certificate"]
    assert found["tlsServerKeyPath"] == given["key"]
    assert found["tlsClientTrustCertPath"] == given["authority"]


def test_a_key_that_others_can_read_is_not_taken(tmp_path: Path) -> None:
    key = tmp_path / "own.pem"
    write_secret(key, b"key")
    key.chmod(0o644)
    with pytest.raises(CommandError, match=r"--key can't be used: .*mode 0644.*chmod 600"):
        secure.write(tmp_path / "secured", secure.HOSTS, dict.fromkeys(secure.GIVEN, str(key)))
    assert not (tmp_path / "secured").exists()


@pytest.mark.parametrize(
    ("hosts", "given", "said"),
    [
        (("a b",), {}, "neither a host name nor an IP address"),
        (("localhost",), {"key": "/nowhere/key.pem"}, "--certificate is missing"),
        (("localhost",), dict.fromkeys(secure.GIVEN, "/nowhere/a.pem"), "is no file"),
    ],
)
def test_nothing_is_written_where_something_is_wrong(
    hosts: tuple[str, ...], given: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match=said):
        secure.write(tmp_path / "secured", hosts, dict(given))
    assert not (tmp_path / "secured").exists()
