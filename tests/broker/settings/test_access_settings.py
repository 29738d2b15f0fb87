"""The settings of access control: what is taken, what stops the start, what is never shown."""

import re
from pathlib import Path

import pytest
from aerobee.broker.runtime.peers import open_peers
from aerobee.broker.server import Broker
from aerobee.broker.settings.access_settings import credentials_of, first_users, init_user_of
from aerobee.broker.settings.config import BrokerConfig, describe, load_broker, to_text
from aerobee.conf.sources import ConfigError
from aerobee.protocol import codes
from aerobee.protocol.bodies.access import UserInfo

from ..conftest import Config, Start

JAVA = "org.apache.rocketmq.auth"


def test_a_java_broker_conf_with_access_control_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "authenticationEnabled=true\n"
        f"authenticationProvider={JAVA}.authentication.provider.DefaultAuthenticationProvider\n"
        "authenticationMetadataProvider="
        f"{JAVA}.authentication.provider.LocalAuthenticationMetadataProvider\n"
        "authenticationStrategy="
        f"{JAVA}.authentication.strategy.StatelessAuthenticationStrategy\n"
        "authenticationWhitelist=34, 38\n"
        'initAuthenticationUser={"username":"admin","password":"p"}\n'
        'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"s"}\n'
        "authorizationEnabled=true\n"
        f"authorizationProvider={JAVA}.authorization.provider.DefaultAuthorizationProvider\n"
        "authorizationMetadataProvider="
        f"{JAVA}.authorization.provider.LocalAuthorizationMetadataProvider\n"
        "userCacheMaxNum=1000\n"
    )
    config, warnings = load_broker(file=file)
    assert warnings == []
    assert (config.authentication_enabled, config.authorization_enabled) == (True, True)
    assert credentials_of(config.inner_client_authentication_credentials) == ("inner", "s")
    assert first_users(
        config.init_authentication_user, config.inner_client_authentication_credentials
    ) == [UserInfo("admin", "p", "Super"), UserInfo("inner", "s", "Super")]


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("authorizationEnabled=true", "anybody could name himself any user; switch on both"),
        ("authenticationEnabled=maybe", "must be true or false"),
        ("authenticationWhitelist=34;38", "has '34;38' in it, but must be request codes"),
        ("authorizationWhitelist=HEART_BEAT", "has 'HEART_BEAT' in it"),
        ("authenticationWhitelist=" + "1," * 1_001, "has 1001 codes, the limit is 1000"),
        ("initAuthenticationUser=admin", 'is not JSON like {"username":"NAME"'),
        ('initAuthenticationUser={"username":"admin"}', "password can not be blank"),
        ('initAuthenticationUser={"password":"hush"}', "username can not be blank"),
        ('initAuthenticationUser={"username":"a","password":"hush","userType":"x"}', "not JSON"),
        ("innerClientAuthenticationCredentials=[]", 'is not JSON like {"accessKey":"NAME"'),
        ('innerClientAuthenticationCredentials={"accessKey":"a"}', '"secretKey":"PASSWORD"}'),
        ("authenticationProvider=com.example.Own", "are this broker's own"),
        (
            "authorizationMetadataProvider="
            "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
            "it can only be org.apache.rocketmq.auth.authorization.provider.LocalAuthorization",
        ),
        ("authenticationStrategy=Stateless", "leave the key out"),
    ],
)
def test_a_wrong_value_stops_the_start_with_a_sentence(setting: str, why: str) -> None:
    key = setting.partition("=")[0]
    with pytest.raises(ConfigError, match=re.escape(why)) as caught:
        load_broker(options=[setting])
    assert str(caught.value).startswith(key)
    assert "hush" not in str(caught.value)


def test_one_name_for_both_is_one_user() -> None:
    user = '{"username":"a","password":"p"}'
    assert first_users(user, '{"accessKey":"a","secretKey":"p"}') == [UserInfo("a", "p", "Super")]
    assert first_users("", " ") == []
    assert init_user_of("") is None


def test_the_secrets_are_never_shown() -> None:
    config = BrokerConfig(
        init_authentication_user='{"username":"a","password":"hush"}',
        inner_client_authentication_credentials='{"accessKey":"b","secretKey":"hush"}',
    )
    for text in (to_text(config, {}), repr(describe(config, {})), repr(config.as_properties())):
        assert "hush" not in text
    assert "innerClientAuthenticationCredentials=******" in to_text(config, {})
    assert "authenticationWhitelist" not in to_text(config, {})  # as in Java, only what was given
    # Nothing is not hidden.
    rows = {row.key: row.value for row in describe(BrokerConfig(), {})}
    assert rows["initAuthenticationUser"] == ""


def test_with_what_commands_sign_is_no_setting_of_a_daemon() -> None:
    environ = {"AEROBEE_ACCESS_KEY": "shop", "AEROBEE_SECRET_KEY": "hush"}
    environ |= {"AEROBEE_TLS": "true", "AEROBEE_TLS_CA": "a", "AEROBEE_TLS_INSECURE": "false"}
    config, warnings = load_broker(environ=environ)
    assert (config, warnings) == (BrokerConfig(), [])


async def test_a_broker_signs_what_it_asks_of_others(start: Start, config: Config) -> None:
    inner = '{"accessKey":"inner","secretKey":"inner-secret"}'
    keys = {"inner_client_authentication_credentials": inner}
    master: Broker = await start(config(**keys, authentication_enabled=True))
    address = f"127.0.0.1:{master.port}"
    for more, code in ((keys, codes.SUCCESS), ({}, codes.NO_PERMISSION)):
        peers = open_peers(config(**more))
        answer = await peers.request(address, codes.GET_ALL_TOPIC_CONFIG)
        await peers.close()
        assert answer.code == code
