"""`aerobee proxy`: its settings and its ready line."""

import asyncio
import json
import signal
import urllib.request
from pathlib import Path

import grpc
import grpc.aio
import pytest
from aerobee.client import Admin
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.scripts.commands.proxy import tls_note
from aerobee.testing import LocalCluster

from ...interop.programs import wait_until
from ...proxy.support import Client, code_of, message
from ...waiting import PROCESS
from ..command import output, refused, running
from ..test_telemetry_export import Collector
from ..test_telemetry_export import collector as collector


def test_it_says_where_it_serves_and_which_clients_get_in(tmp_path: Path) -> None:
    with running(tmp_path, "proxy", "-n", "127.0.0.1:1", "--listen-port", "0") as daemon:
        assert "the proxy is ready on 127.0.0.1:" in daemon.ready
        page = daemon.ready.partition("HTTP ")[2].partition(",")[0]
        with urllib.request.urlopen(f"{page}metrics", timeout=10) as answer:
            assert b"rocketmq_proxy_up{" in answer.read()
        assert "name servers: 127.0.0.1:1; TLS with a certificate made now" in daemon.ready


def test_sighup_takes_the_level_of_the_log_from_the_file(tmp_path: Path) -> None:
    settings, log = tmp_path / "proxy.yaml", tmp_path / "log"
    settings.write_text(f"logFile: {log}\nlogLevel: warning\nlogFormat: json\nhttpPort: -1\n")
    words = ["proxy", "-c", str(settings), "-n", "127.0.0.1:1", "--listen-port", "0"]
    with running(tmp_path, *words) as daemon:
        assert log.read_text() == ""
        settings.write_text(settings.read_text().replace("warning", "info"))
        daemon.child.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "logLevel is info" in log.read_text(), log.read_text)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} == {"info"}


async def test_spans_go_to_the_collector_of_the_settings(
    tmp_path: Path, collector: Collector
) -> None:
    target = f"spansGrpcExporterTarget=http://127.0.0.1:{collector.port}"
    pair = {"traceparent": f"00-{'4b' * 16}-{'a2' * 8}-01"}
    with LocalCluster() as cluster:
        words = ("proxy", "-n", cluster.name_server, "--listen-port", "0", "--set", target)
        with running(tmp_path, *words, "--set", "httpPort=-1") as daemon:
            address = daemon.ready.partition("ready on ")[2].partition(",")[0]
            async with Admin(cluster.name_server) as admin:
                await admin.create_topic("Traced")
            async with grpc.aio.insecure_channel(address) as channel:
                one = message("Traced", "one", user_properties=pair)
                answer = await Client(channel, "c").call("SendMessage", messages=[one])
            assert code_of(answer) == "OK"
            async with asyncio.timeout(PROCESS):
                request = await collector.spans.get()
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("send Traced", "4b" * 16)


def test_settings_are_shown_without_secrets() -> None:
    secret = '{"accessKey":"a","secretKey":"hidden"}'
    words = ("--set", f"innerClientAuthenticationCredentials={secret}", "--set", "grpcServerPort=9")
    shown = output("proxy", "--print-config", "changed", *words)
    assert "grpcServerPort" in shown
    assert "hidden" not in shown
    rows = [json.loads(line) for line in output("proxy", "--print-config", "json").splitlines()]
    assert {row["key"]: row["value"] for row in rows}["maxMessageSize"] == "4194304"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grpcServerPort=x", "grpcServerPort is 'x'"),
        ("innerClientAuthenticationCredentials=x", "is not JSON like"),
    ],
)
def test_a_wrong_setting_stops_the_start(text: str, said: str) -> None:
    assert said in refused("proxy", "--set", text)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (ProxyConfig(tls_server_mode="disabled"), "TLS is off"),
        (ProxyConfig(tls_server_mode="enforcing"), "no plain connections"),
        (ProxyConfig(tls_cert_path="c", tls_key_path="k"), "TLS with your certificate; plain"),
    ],
)
def test_the_note_on_tls_is_that_of_the_settings(config: ProxyConfig, said: str) -> None:
    assert said in tls_note(config)
