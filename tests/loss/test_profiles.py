"""docker-compose.yml: each profile has brokers that find each other, with settings that exist."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from aerobee.broker.settings.config import KEYS as BROKER_KEYS
from aerobee.broker.settings.config import load_broker
from aerobee.conf.load import load
from aerobee.conf.sources import from_environment
from aerobee.lake import settings
from aerobee.scripts.commands.controller import KEYS as CONTROLLER_KEYS
from aerobee.scripts.commands.daemons import NAMESRV_KEYS

from .profiles import COMPOSE, ETCD, PROFILES, Daemons, Service, services_of

KEYS = {
    "broker": set(BROKER_KEYS.fields),
    "controller": set(CONTROLLER_KEYS.fields),
    "namesrv": set(NAMESRV_KEYS.fields),
}
KEY = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
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


def volumes_of(service: dict[str, Any]) -> set[str]:
    """The named volumes of a service, without files of the project."""
    named = {text.partition(":")[0] for text in service.get("volumes", [])}
    return {each for each in named if not each.startswith("./")}


def test_every_volume_and_dependency_is_declared() -> None:
    compose = yaml.safe_load(COMPOSE.read_text())
    services = compose["services"]
    for name, one in services.items():
        assert volumes_of(one) <= compose["volumes"].keys(), name
        assert set(one.get("depends_on", [])) <= services.keys(), name
    used = {each for one in services.values() for each in volumes_of(one)}
    assert used == compose["volumes"].keys()
    profiles = {each for one in services.values() for each in one.get("profiles", [])}
    assert profiles == {*PROFILES, "console", "grpc", "lake", "slave", "spark"}


def test_the_lake_has_settings_for_its_catalog_and_its_s3_server() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    ours = {name: one for name, one in services.items() if "lake" in one.get("profiles", [])}
    assert ours.keys() == {"s3", "catalog", "lake"}
    published = {name: one["ports"][0].rsplit(":", 1) for name, one in ours.items()}
    (mounted,) = ours["lake"]["volumes"]
    path, inside, _ = mounted.split(":")
    assert inside == "/var/lib/aerobee/lake.yaml"
    found = settings.read(COMPOSE.parent / path)
    assert found.catalog["uri"] == f"http://catalog:{published['catalog'][1]}"
    assert found.catalog["s3.endpoint"] == f"http://s3:{published['s3'][1]}"
    assert str(found.http_port) == published["lake"][1]
    assert found.entry_of("any.topic") is not None
    for outside, _ in published.values():
        assert outside.startswith("127.0.0.1:")
    # Both lake and catalog write to the bucket, with the server's key.
    key = [ours["s3"]["environment"][f"ROOT_{each}_KEY"] for each in ("ACCESS", "SECRET")]
    for name in ("catalog", "lake"):
        environment = ours[name]["environment"]
        assert [environment[f"AWS_{each}"] for each in KEY] == key
        assert environment["AWS_REGION"] == found.catalog["s3.region"]
    assert ours["catalog"]["environment"]["CATALOG_WAREHOUSE"] == found.place


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
