"""The hosts that may take a master's log."""

import pytest
from aerobee.broker.settings.ha_addresses import is_allowed, networks_of, resolved
from aerobee.conf.sources import ConfigError


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("192.168.0.7", True),
        ("192.168.0.8", False),
        ("fd00::5", True),
        ("fe80::1%eth0", False),
        ("172.16.0.9", True),  # a replica
        ("2001:db8::1", True),  # a replica
        ("a-name", False),
    ],
)
def test_loopback_the_networks_and_the_replicas_may(host: str, is_one: bool) -> None:
    networks = networks_of("10.1.0.0/16; 192.168.0.7,fd00::/8;")
    replicas = ["172.16.0.9:10911", "[2001:db8::1]:10911", "", "a-name:1"]
    assert is_allowed(host, networks, replicas) == is_one


@pytest.mark.parametrize("text", ["10.0.0.0/33", "somewhere", "10.0.0.1/8"])
def test_what_is_no_network_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigError, match=f"haAllowedAddresses names '{text}'"):
        networks_of(f"127.0.0.1;{text}")


async def test_the_name_of_a_host_is_resolved() -> None:
    assert await resolved("localhost:5") in ("127.0.0.1:5", "::1:5")
    for same in ("10.0.0.1:5", "[::1]:5", "", "no-such-host.invalid:5"):
        assert await resolved(same) == same
