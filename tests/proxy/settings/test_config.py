"""The settings of a proxy: RocketMQ's file is taken as it is."""

from pathlib import Path

import pytest
from aerobee.conf.load import load
from aerobee.proxy.settings.config import KEYS, ProxyConfig


def test_rocketmq_s_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(
        '{\n  "rocketMQClusterName": "DefaultCluster",\n  "namesrvAddr": "ns:9876",\n'
        '  "grpcServerPort": 8090,\n  "enableProxyAutoRenew": false\n}\n'
    )
    config, warnings = load(KEYS, file=file)
    assert warnings == []
    assert (config.namesrv_addr, config.grpc_server_port) == ("ns:9876", 8_090)
    assert not config.enable_proxy_auto_renew


def test_credentials_are_those_of_the_json() -> None:
    assert ProxyConfig().credentials() == ("", "")
    text = '{"accessKey":"a","secretKey":"s"}'
    config = ProxyConfig(inner_client_authentication_credentials=text)
    assert config.credentials() == ("a", "s")
    for odd in ("x", "[]", '{"accessKey":"a"}'):
        with pytest.raises(ValueError, match="innerClientAuthenticationCredentials"):
            ProxyConfig(inner_client_authentication_credentials=odd)
