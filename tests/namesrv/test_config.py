"""Settings of a name server: RocketMQ's keys, typed, with ranges."""

import pytest
from aerobee.conf.changes import names_of, unknown_keys
from aerobee.namesrv.config import UNUSED, NamesrvConfig
from aerobee.protocol.codec import java_properties


def test_texts_become_typed_settings() -> None:
    found = NamesrvConfig().changed({"listenPort": "9877", "enableTopicList": "false"})
    assert found.listen_port == 9877
    assert found.enable_topic_list is False
    assert found.enable_all_topic_list is True


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("listenPort", "x", "setting listenPort is 'x': expected int, got str"),
        ("listenPort", "65536", "setting listenPort is '65536': expected int <= 65535"),
        ("scanNotActiveBrokerInterval", "9", "expected int >= 10"),
        ("enableTopicList", "maybe", "expected bool, got str"),
        ("kvConfigPath", 5, "expected str, got int"),
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_named(
    key: str, value: object, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        NamesrvConfig().changed({key: value})


def test_an_unknown_key_is_named_with_the_nearest_known_one() -> None:
    found = unknown_keys(NamesrvConfig, ["listenPrt", "listenPort", "zzz"])
    assert found == {"listenPrt": "listenPort", "zzz": None}


def test_settings_read_back_from_what_they_print() -> None:
    config = NamesrvConfig().changed({"listenPort": "9877", "kvConfigPath": "/x/y.json"})
    printed = config.to_properties()
    assert NamesrvConfig().changed(java_properties.parse(printed)) == config


def test_every_key_that_has_no_effect_is_a_key() -> None:
    assert names_of(NamesrvConfig).keys() >= UNUSED


def test_the_black_list_always_holds_the_paths() -> None:
    config = NamesrvConfig(config_black_list="listenPort;")
    assert config.black_list == {
        "listenPort",
        "configBlackList",
        "configStorePath",
        "kvConfigPath",
        "rocketmqHome",
        "authenticationEnabled",
        "authorizationEnabled",
        "auditLog",
        "authUsersPath",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "namesrvAuthenticationRequired",
        "tlsServerCertPath",
        "tlsServerKeyPath",
        "tlsServerMode",
    }
