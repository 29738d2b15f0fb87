"""`aerobee proxy`: its settings and its ready line."""

import json
import urllib.request
from pathlib import Path

import pytest
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.scripts.commands.proxy import tls_note

from ..command import output, refused, running


def test_it_says_where_it_serves_and_which_clients_get_in(tmp_path: Path) -> None:
    with running(tmp_path, "proxy", "-n", "127.0.0.1:1", "--listen-port", "0") as daemon:
        assert "the proxy is ready on 127.0.0.1:" in daemon.ready
        page = daemon.ready.partition("status page ")[2].partition(",")[0]
        with urllib.request.urlopen(f"{page}metrics", timeout=10) as answer:
            assert b"rocketmq_proxy_up{" in answer.read()
        assert "name servers: 127.0.0.1:1; TLS with a certificate made now" in daemon.ready


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
        ("innerClientAuthenticationCredentials=x", "can't be read"),
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
