"""The settings of controllers that keep their state in etcd."""

import pytest
from aerobee.controller.config import ALWAYS_BLACK, ControllerConfig
from aerobee.controller.etcd_settings import ETCD_KEYS, EtcdSettings, peers_of

HERE = "http://127.0.0.1:2379"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"controller_etcd_endpoints": ""}, "controllerEtcdEndpoints is empty; name etcd's"),
        ({"controller_etcd_endpoints": "127.0.0.1:2379"}, "'127.0.0.1:2379', which is no URL"),
        ({"controller_etcd_endpoints": "http://h"}, "'http://h', which is no URL"),
        ({"controller_etcd_endpoints": f"{HERE};http://h:1/v3"}, "'http://h:1/v3', which is no"),
        ({"controller_etcd_endpoints": "http://h:99999"}, "write http://HOST:PORT"),
        ({"controller_etcd_endpoints": "http://me:secret@h:1"}, "URL 1 .* has an @"),
        ({"controller_etcd_endpoints": ";".join([HERE] * 21)}, "has 21 URLs, the limit is 20"),
        ({"controller_etcd_prefix": "/aerobee"}, "'/aerobee'; it must be a name"),
        ({"controller_etcd_prefix": "/"}, "it must be a name"),
        ({"controller_etcd_prefix": "x" * 200 + "/"}, "at most 200 characters"),
        ({"controller_etcd_user": "u"}, "controllerEtcdUser is set and controllerEtcdPassword is"),
        ({"controller_etcd_password": "p"}, "controllerEtcdPassword is set and controllerEtcdUser"),
        ({"controller_etcd_cert_path": "c"}, "set and controllerEtcdKeyPath is not"),
        ({"bind_address": "0.0.0.0"}, "controllerDLegerPeers is empty"),
        ({"controller_dleger_peers": "n1-h:1"}, "'n0', which controllerDLegerPeers does not name"),
        ({"controller_dleger_peers": "n0-h"}, "write ID-HOST:PORT"),
        ({"controller_dleger_peers": "n0-h:65536"}, "write ID-HOST:PORT"),
    ],
)
def test_settings_that_can_not_work_are_refused_with_a_remedy(
    settings: dict[str, str], reason: str
) -> None:
    given = {"controller_etcd_endpoints": HERE} | settings
    with pytest.raises(ValueError, match=reason) as raised:
        ControllerConfig(controller_type="etcd", **given)  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)


def test_controllers_are_named_as_rocketmq_names_them() -> None:
    peers = "n0-10.0.0.1:9878; n1-my-host:9879;"
    assert peers_of(peers) == {"n0": "10.0.0.1:9878", "n1": "my-host:9879"}
    config = ControllerConfig(
        controller_type="etcd",
        controller_etcd_endpoints=f"{HERE}/;https://etcd:2379",
        controller_dleger_peers=peers,
        bind_address="0.0.0.0",
    )
    assert config.peers["n0"] == "10.0.0.1:9878"
    assert config.endpoints == [HERE, "https://etcd:2379"]


def test_the_password_is_neither_shown_nor_changed_by_a_request() -> None:
    config = ControllerConfig(
        controller_type="etcd",
        controller_etcd_endpoints=HERE,
        controller_etcd_user="me",
        controller_etcd_password="secret",
    )
    assert "secret" not in config.to_properties()
    assert "secret" not in f"{config} {config!r}"
    assert "controllerEtcdUser=me" in config.to_properties()
    assert set(EtcdSettings.__struct_encode_fields__) == ETCD_KEYS <= ALWAYS_BLACK
