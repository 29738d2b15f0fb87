"""docker-compose.yml: each profile has brokers that find each other, with settings that exist."""

import os
from pathlib import Path

import pytest
import yaml
from aerobee.broker.settings.config import KEYS as BROKER_KEYS
from aerobee.broker.settings.config import load_broker
from aerobee.conf.load import load
from aerobee.conf.sources import from_environment
from aerobee.scripts.commands.controller import KEYS as CONTROLLER_KEYS
from aerobee.scripts.commands.daemons import NAMESRV_KEYS

from .profiles import COMPOSE, ETCD, PROFILES, Daemons, Service, services_of

KEYS = {
    "broker": set(BROKER_KEYS.fields),
    "controller": set(CONTROLLER_KEYS.fields),
    "namesrv": set(NAMESRV_KEYS.fields),
}
# name of the broker and its role, for each broker of the profile
BROKERS = {
    "2m": [("broker-1", "ASYNC_MASTER"), ("broker-2", "ASYNC_MASTER")],
    "2m-2s-async": [
        ("broker-1", "ASYNC_MASTER"),
        ("broker-2", "ASYNC_MASTER"),
        ("broker-1", "SLAVE"),
        ("broker-2", "SLAVE"),
    ],
    "2m-2s-sync": [
        ("broker-1", "SYNC_MASTER"),
        ("broker-2", "SYNC_MASTER"),
        ("broker-1", "SLAVE"),
        ("broker-2", "SLAVE"),
    ],
    "controller": [("broker-1", "ASYNC_MASTER")] * 3,
    "controller-etcd": [("broker-1", "ASYNC_MASTER")] * 3,
}


def environment_of(service: Service) -> dict[str, str]:
    """The environment of the service's process in its container, as far as it is ours."""
    image = {"AEROBEE_BIND_ADDRESS": "0.0.0.0", "AEROBEE_HTTP_PORT": "8080"}
    return image | service.environment


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_its_brokers(profile: str) -> None:
    brokers = [one for one in services_of(profile) if one.role == "broker"]
    found = []
    for one in brokers:
        config, warnings = load_broker(options=[], environ=environment_of(one))
        assert not [each for each in warnings if "unknown" in each]
        found.append((config.broker_name, config.broker_role))
        assert config.listen_port == one.port
        assert config.enable_controller_mode == profile.startswith("controller")
    assert found == BROKERS[profile]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_setting_is_one_of_the_daemons(profile: str) -> None:
    for one in services_of(profile):
        if one.role == ETCD:
            continue
        known = KEYS[one.role]
        keys = {each.key for each in from_environment(one.environment, known)}
        assert keys <= known, f"{one.name}: {keys - known}"


@pytest.mark.parametrize("profile", ["controller", "controller-etcd"])
def test_controllers_start_with_their_settings_and_members_name_all_of_them(profile: str) -> None:
    services = services_of(profile)
    controllers = [one for one in services if one.role == "controller"]
    addresses = ";".join(f"{one.name}:{one.port}" for one in controllers)
    for one in controllers:
        config, _ = load(CONTROLLER_KEYS, environ=environment_of(one))
        assert config.listen_port == one.port
        if config.controller_type == "etcd":
            assert ";".join(config.peers.values()) == addresses
            assert config.peers[config.controller_dleger_self_id] == f"{one.name}:{one.port}"
    for one in services:
        if one.role == "broker":
            assert one.environment["AEROBEE_CONTROLLER_ADDR"] == addresses


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_names_each_port_once_and_on_loopback_only(profile: str) -> None:
    published = [port for one in services_of(profile) for port in one.published]
    hosts, ports, insides = zip(*(text.split(":") for text in published), strict=True)
    assert set(hosts) == {"127.0.0.1"}
    assert len(set(ports)) == len(ports)
    for one in services_of(profile):
        # Clients connect to the port that the daemon tells, so it is the same outside.
        assert not one.published or f"127.0.0.1:{one.port}:{one.port}" in one.published
    assert "8080" in insides


def test_every_volume_and_dependency_is_declared() -> None:
    compose = yaml.safe_load(COMPOSE.read_text())
    services = compose["services"]
    for name, one in services.items():
        volumes = [text.partition(":")[0] for text in one.get("volumes", [])]
        assert set(volumes) <= compose["volumes"].keys(), name
        assert set(one.get("depends_on", [])) <= services.keys(), name
    used = {text.partition(":")[0] for one in services.values() for text in one.get("volumes", [])}
    assert used == compose["volumes"].keys()
    profiles = {each for one in services.values() for each in one.get("profiles", [])}
    assert profiles == {*PROFILES, "console", "grpc", "slave", "spark"}


def test_the_processes_of_a_profile_know_each_other_by_their_own_ports(tmp_path: Path) -> None:
    daemons = Daemons("controller", tmp_path)
    (controller,) = daemons.controllers
    for broker in daemons.of("broker"):
        assert broker.environment["AEROBEE_CONTROLLER_ADDR"] == controller
        assert broker.environment["NAMESRV_ADDR"] == daemons.namesrv
    assert daemons.broker_names == ["broker-1"]
    assert len({one.address for one in daemons.all}) == len(daemons.all)
    assert os.listdir(tmp_path)
    with pytest.raises(ValueError, match="there is no profile 'x'; there are 2m, 2m-2s-async"):
        services_of("x")
