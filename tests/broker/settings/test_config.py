"""A broker's settings: where they come from, what they may be, and how they are shown."""

import re
import socket
from pathlib import Path

import msgspec
import pytest
from aerobee.broker.settings import config as config_module
from aerobee.broker.settings.config import (
    OWN_KEYS,
    BrokerConfig,
    describe,
    load_broker,
    reachable_address,
    to_text,
)
from aerobee.conf.java_keys import AUTH_KEYS, JAVA_KEYS
from aerobee.conf.sources import FILE_BYTES_MAX, ConfigError
from aerobee.protocol.codec import java_properties

GOLDEN = Path(__file__).parents[2] / "golden" / "broker_config_keys.txt"
SHIPPED = Path(config_module.__file__).parents[2] / "conf" / "broker.yaml"

# Where ours differ from Java's: it binds to loopback, notes of pop stay in memory for a while, a
# null key of Java's start-up is filled, and the time of a timer message has no cap.
OWN_DEFAULTS = {
    "bindAddress": "127.0.0.1",
    "enablePopBufferMerge": "true",
    "listenPort": "10911",
    "timerMaxDelaySec": "2147483647",
    "syncBrokerMetadataPeriod": "1000",
}


def java_keys() -> dict[str, tuple[str, str | None]]:
    """Type and default of every key as the real classes have them; later classes win."""
    found: dict[str, tuple[str, str | None]] = {}
    for line in GOLDEN.read_text().splitlines():
        if not line.startswith("#"):
            _, kind, pair = line.split(" ", 2)
            key, equals, default = pair.partition("=")
            if key not in found:
                found[key] = (kind, default if equals else None)
    return found


# --- the keys -------------------------------------------------------------------------------------


def test_every_key_of_a_java_broker_is_known() -> None:
    known = {*JAVA_KEYS, *config_module.KEYS.fields} - OWN_KEYS
    assert java_keys().keys() - known == set()
    assert known - java_keys().keys() == {"inBrokerContainer", "scanAvailableNameSrv"}  # setters


def test_no_key_is_both_used_and_without_effect() -> None:
    assert JAVA_KEYS.keys() & config_module.KEYS.fields.keys() == set()


def test_the_types_and_defaults_of_unused_keys_are_javas() -> None:
    java = java_keys()
    for key, (kind, default) in JAVA_KEYS.items():
        if key in java and java[key][1] != "?":
            assert default == java[key][1], key
            if kind != "String":
                assert kind == java[key][0], key


def test_the_defaults_of_used_keys_are_javas() -> None:
    shown = BrokerConfig().as_properties()
    for key, (_, default) in java_keys().items():
        if key in config_module.KEYS.fields and default not in (None, "?"):
            assert shown[key] == OWN_DEFAULTS.get(key, default), key


def test_every_declared_key_is_read_by_something() -> None:
    folder = Path(config_module.__file__).parents[1]
    files = [*folder.rglob("*.py"), *(folder.parent / "scripts").rglob("*.py")]
    sources = [path.read_text() for path in files if path != folder / "settings" / "config.py"]
    # What the declarations themselves don't count for, but what is made of them does.
    sources.append((folder / "settings" / "config.py").read_text().partition("    @property")[2])
    text = "\n".join(sources)
    fields = config_module.KEYS.fields
    unread = {key for key, info in fields.items() if f".{info.name}" not in text}
    assert unread == set()


def test_a_running_broker_tells_absolute_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    told = java_properties.parse(to_text(BrokerConfig(), {}))
    assert told["storePathRootDir"] == str(tmp_path / "home" / "store")
    assert "storePathCommitLog" not in told  # null in Java
    config = BrokerConfig(store_path_root_dir="data-a", store_path_commit_log="log-a")
    told = java_properties.parse(to_text(config, {}))
    assert told["storePathRootDir"] == str(tmp_path / "data-a")
    assert told["storePathCommitLog"] == str(tmp_path / "log-a")


# --- sources --------------------------------------------------------------------------------------


def test_a_properties_file_of_a_java_broker_is_read(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "# as users have it\n! and so\nbrokerClusterName = Shop\nbrokerName:broker-b\n"
        "listenPort 20911\nflushDiskType=SYNC_\\\n   FLUSH\ndeleteWhen=04\n"
        "sendMessageThreadPoolNums=8\n"
        "regionId=\\u0052egion\nautoCreateTopicEnable = FALSE  \n"
    )
    config, warnings = load_broker(file=file)
    assert warnings == []
    assert (config.broker_cluster_name, config.broker_name) == ("Shop", "broker-b")
    assert (config.listen_port, config.flush_disk_type) == (20_911, "SYNC_FLUSH")
    assert (config.delete_when, config.region_id) == ("04", "Region")
    assert config.auto_create_topic_enable is False
    assert config.others == {"sendMessageThreadPoolNums": "8"}


def test_yaml_gives_its_texts_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(
        "deleteWhen: 04\nlistenPort: 0\nbrokerName: 007\nautoCreateTopicEnable: false\n"
        "namesrvAddr:\nregionId: 'off'\n"
    )
    config, _ = load_broker(file=file)
    assert (config.delete_when, config.broker_name, config.region_id) == ("04", "007", "off")
    assert (config.listen_port, config.auto_create_topic_enable) == (0, False)
    assert config.namesrv_addr == ""


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    file = tmp_path / "broker.yml"
    file.write_text("regionId: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match=r"regionId at line 1 .* is a list or a mapping"):
        load_broker(file=file)


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=file:1\nregionId=file\nlistenPort=1111\nmaxMessageSize=1111\n")
    environ = {
        "NAMESRV_ADDR": "environment:1",
        "AEROBEE_LISTEN_PORT": "2222",
        "AEROBEE_MAXMESSAGESIZE": "2222",
        "AEROBEE_REGION_ID": "",
    }
    config, warnings = load_broker(file=file, options=["maxMessageSize=3333"], environ=environ)
    assert warnings == []
    assert config.namesrv_addr == "file:1"
    assert config.region_id == "file"
    assert config.listen_port == 2_222
    assert config.max_message_size == 3_333


def test_the_name_servers_come_from_rocketmqs_own_variable() -> None:
    config, _ = load_broker(environ={"NAMESRV_ADDR": "10.0.0.1:9876;10.0.0.2:9876"})
    assert config.namesrv_addr == "10.0.0.1:9876;10.0.0.2:9876"


@pytest.mark.parametrize(
    ("key", "near"),
    [("lisenPort", "listenPort"), ("brokerIp1", "brokerIP1"), ("FLUSHDISKTYPE", "flushDiskType")],
)
def test_an_unknown_key_warns_and_names_the_nearest(key: str, near: str) -> None:
    config, warnings = load_broker(options=[f"{key}=5"])
    assert warnings == [f"unknown key {key} (--set) has no effect; did you mean {near}?"]
    assert config.others == {key: "5"}


def test_an_unknown_key_of_any_bytes_is_shown_harmlessly() -> None:
    _, warnings = load_broker(options=["\x1b[2J" + "x" * 500 + "=5"])
    assert warnings == ["unknown key '\\x1b[2J" + "x" * 72 + " (--set) has no effect"]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"\x7fELF\0\0\0\0")
    with pytest.raises(ConfigError, match="is no text; is it the right file"):
        load_broker(file=path)


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("aclEnable", "use authenticationEnabled and authorizationEnabled"),
        ("migrateAuthFromV1Enabled", "createUser and createAcl"),
        ("enableDLegerCommitLog", "enableControllerMode"),
    ],
)
def test_what_somebody_relies_on_and_does_not_get_is_told(key: str, instead: str) -> None:
    _, warnings = load_broker(options=[f"{key}=true"])
    assert [warning.startswith(f"{key}=true has no effect: ") for warning in warnings] == [True]
    assert instead in warnings[0]
    assert load_broker(options=[f"{key}=false"])[1] == []


@pytest.mark.parametrize("key", ["brokerIP1", "brokerIP2"])
@pytest.mark.parametrize("address", ["0.0.0.0", "255.255.255.255", "::", "224.0.0.1"])
def test_an_address_of_no_machine_is_told(key: str, address: str) -> None:
    _, warnings = load_broker(options=[f"{key}={address}"])
    assert f"{key} is {address}, at which nobody can connect" in warnings[0]
    assert load_broker(options=[f"{key}=127.0.0.1"])[1] == []


def test_a_master_whose_sends_wait_for_no_slave_is_told() -> None:
    _, warnings = load_broker(options=["brokerRole=SYNC_MASTER"])
    assert ["set inSyncReplicas=2" in warning for warning in warnings] == [True]
    assert load_broker(options=["brokerRole=SYNC_MASTER", "inSyncReplicas=2"])[1] == []


@pytest.mark.parametrize("name", ["broker.conf", "broker.yaml"])
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    line = "brokerClusterName: C" if name.endswith("yaml") else "brokerClusterName=C"
    file.write_text(line + "\n", "utf-8-sig")
    config, warnings = load_broker(file=file)
    assert (config.broker_cluster_name, warnings) == ("C", [])


@pytest.mark.parametrize("key", ["enableLmq", "enableMultiDispatch"])
def test_light_queues_need_both_of_their_switches(key: str) -> None:
    config, warnings = load_broker(options=[f"{key}=true"])
    assert not config.lmq_enable
    assert ["which need both; set both to true" in warning for warning in warnings] == [True]
    config, warnings = load_broker(options=["enableLmq=true", "enableMultiDispatch=true"])
    assert config.lmq_enable
    assert warnings == []


def test_the_address_that_clients_are_told_may_be_a_name() -> None:
    with pytest.raises(
        ConfigError, match=r"brokerIP1 is 'broker:1', but must be .+ without a port"
    ):
        load_broker(options=["brokerIP1=broker:1"])
    assert load_broker(options=["brokerIP1=broker.example"])[0].broker_ip1 == "broker.example"
    assert load_broker(options=["brokerIP1=fd00::1"])[0].broker_ip1 == "fd00::1"


@pytest.mark.parametrize(
    "text", ["names", "names:", ":9876", "names:x", "names:70000", "a:1; b:2", "http://names:80"]
)
def test_what_is_no_address_of_a_name_server_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^namesrvAddr names '.*', but must be host:port"):
        load_broker(options=[f"namesrvAddr={text}"])
    for good in ("", "names:9876", "10.1.2.3:1;[::1]:2;my_names.example:3;", "::1:9876"):
        assert load_broker(options=[f"namesrvAddr={good}"])[0].namesrv_addr == good


@pytest.mark.parametrize("key", ["bindAddress", "httpBindAddress"])
def test_an_empty_address_does_not_open_every_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is '' .*but must be a text, not an empty one"):
        load_broker(options=[f"{key}="])


def test_an_unknown_variable_warns() -> None:
    _, warnings = load_broker(environ={"AEROBEE_XYZZY": "1"})
    assert warnings == ["unknown key xyzzy (environment variable AEROBEE_XYZZY) has no effect"]


@pytest.mark.parametrize("option", ["listenPort", "=5", ""])
def test_an_option_without_key_and_value_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="write --set key=value"):
        load_broker(options=[option])


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.conf can't be read: No such file"):
        load_broker(file=tmp_path / "nowhere.conf")


def test_a_file_that_is_no_config_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "big.conf"
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load_broker(file=file)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a\n- b\n", "holds no keys"),
        ("a: [1\n", "is not YAML"),
        ("regionId:\n  a: b\n", "regionId at line 2 .* is a list or a mapping"),
    ],
)
def test_yaml_of_another_shape_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_broker(file=file)


def test_a_bad_escape_in_properties_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("regionId=\\u00\n")
    with pytest.raises(ConfigError, match="four hex digits"):
        load_broker(file=file)


def test_bytes_that_are_not_utf_8_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"# caf\xe9\nregionId=caf\xe9\n")
    assert load_broker(file=file)[0].region_id == "café"


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("listenPort=abc", "a whole number from 0 to 65535"),
        ("listenPort=65536", "a whole number from 0 to 65535"),
        ("listenPort=1.5", "a whole number from 0 to 65535"),
        ("httpPort=-2", "a whole number from -1 to 65535"),
        ("autoCreateTopicEnable=yes", "true or false"),
        ("flushDiskType=async", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerClusterName=../up", "a text of at most 90 characters that matches"),
        ("brokerClusterName=" + "c" * 91, "a text of at most 90 characters"),
        ("messageDelayLevel=1s 5x", "a text that matches"),
        ("flushConsumerOffsetInterval=0", "a whole number from 10 to 86400000"),
        ("maxMessageSize=16777216", "a whole number from 1 to 15728640"),
        # Keys without effect are checked as well: a typing error is one everywhere.
        ("sendMessageThreadPoolNums=many", "a whole number from -2147483648 to 2147483647"),
        (
            "scheduleAsyncDeliverMaxPendingLimit=2147483648",
            "a whole number from -2147483648 to 2147483647",
        ),
        ("brokerFastFailureEnable=1", "true or false"),
        ("logicalDiskSpaceCleanForciblyThreshold=x", "a number"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_key_value_and_limit(option: str, sentence: str) -> None:
    key, _, value = option.partition("=")
    with pytest.raises(ConfigError) as caught:
        load_broker(options=[option])
    text = str(caught.value)
    assert text.startswith(f"{key} is {value!r} (--set), but must be {sentence}")
    assert text.endswith("; correct it or leave it out")


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("brokerRole=SLAVE", "brokerId is 0, but a slave's must be at least 1"),
        ("inSyncReplicas=0", "inSyncReplicas"),
        ("inSyncReplicas=18", "inSyncReplicas"),
        ("haAllowedAddresses=10.0.0.0/33", "haAllowedAddresses"),
        ("haAllowedAddresses=somewhere", "haAllowedAddresses"),
        ("minInSyncReplicas=0", "minInSyncReplicas"),
        ("haTransferBatchSize=4194304", "haTransferBatchSize"),
        ("haMasterAddress=elsewhere", "must be host:port"),
        ("brokerIP2=a:1", "must be an IP address or the name of a host, without a port"),
        ("brokerName=..", "becomes a topic's name"),
        ("brokerName=a/b", "becomes a topic's name"),
        ("deleteWhen=04;24", "hours from 00 to 23"),
        ("storePathCommitLog=/a/log,/b/log", "in several folders is not served; name one"),
    ],
)
def test_what_the_broker_can_not_be_is_refused(option: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_broker(options=[option])


def test_a_master_has_broker_id_0_whatever_was_given_and_a_slave_its_own() -> None:
    assert load_broker(options=["brokerId=3"])[0].broker_id == 0
    slave, _ = load_broker(options=["brokerId=3", "brokerRole=SLAVE", "brokerName=a"])
    assert (slave.broker_id, slave.is_slave) == (3, True)


def test_a_slave_calls_messages_cold_a_little_earlier_as_in_rocketmq() -> None:
    options = ["brokerId=1", "brokerRole=SLAVE"]
    assert load_broker(options=options)[0].store_settings().memory_ratio_percent == 30
    low = load_broker(options=[*options, "accessMessageInMemoryMaxRatio=5"])[0]
    assert low.store_settings().memory_ratio_percent == 1


def test_the_brokers_name_is_the_hosts_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node 7.example.com")
    assert BrokerConfig().broker_name == "node-7.example.com"


def test_the_settings_reach_the_store() -> None:
    config = BrokerConfig(
        max_message_size=9,
        flush_disk_type="SYNC_FLUSH",
        message_delay_level="1s 2m",
        store_path_root_dir="/somewhere",
    )
    settings = config.store_settings()
    assert settings.max_message_bytes == 9
    assert settings.sync_flush
    assert settings.delay_levels_ms == (1_000, 120_000)
    assert settings.commit_log_dir == Path("/somewhere/commitlog")


# --- addresses ------------------------------------------------------------------------------------


def test_a_broker_on_loopback_advertises_loopback() -> None:
    assert BrokerConfig().broker_ip1 == "127.0.0.1"
    assert BrokerConfig(bind_address="localhost").broker_ip1 == "127.0.0.1"


def test_a_broker_on_one_address_advertises_it() -> None:
    assert BrokerConfig(bind_address="10.1.2.3").broker_ip1 == "10.1.2.3"


def test_a_given_address_wins() -> None:
    assert BrokerConfig(bind_address="0.0.0.0", broker_ip1="10.9.9.9").broker_ip1 == "10.9.9.9"


class Probe:
    """A UDP socket as a machine would have it; `address` None: it has no way out."""

    def __init__(self, address: str | None) -> None:
        self.address = address

    def __call__(self, *_: object) -> "Probe":
        return self

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def connect(self, _: object) -> None:
        if self.address is None:
            raise OSError("network is unreachable")

    def getsockname(self) -> tuple[str | None, int]:
        return self.address, 1


def entry(address: str) -> tuple[object, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))


@pytest.mark.parametrize(
    ("way_out", "of_host_name", "advertised"),
    [
        ("192.0.2.7", [], "192.0.2.7"),
        (None, ["127.0.1.1", "10.0.0.5"], "10.0.0.5"),
        ("127.0.0.1", ["10.0.0.5"], "10.0.0.5"),
        (None, ["127.0.1.1"], "127.0.0.1"),
    ],
)
def test_a_broker_bound_to_everything_advertises_an_address_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, way_out: str | None, of_host_name: list[str], advertised: str
) -> None:
    monkeypatch.setattr(socket, "socket", Probe(way_out))
    entries = [entry(address) for address in of_host_name]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: entries)
    assert reachable_address("0.0.0.0") == advertised


def test_no_http_port_is_not_one_that_was_set() -> None:
    assert BrokerConfig().http_port is None
    assert BrokerConfig(http_port=-1).http_port == -1
    found = {each.key: (each.value, each.state) for each in describe(BrokerConfig(), {})}
    assert found["httpPort"] == ("", "used")


def test_the_token_of_the_http_port_is_checked_and_never_shown() -> None:
    token = "0123456789abcdef"
    config, _ = load_broker(options=[f"httpToken={token}"])
    assert {each.key: each.value for each in describe(config, {})}["httpToken"] == "******"
    assert token not in to_text(config, {})
    with pytest.raises(ConfigError, match="httpToken has 5 characters"):
        load_broker(options=["httpToken=short"])


# --- showing --------------------------------------------------------------------------------------


def test_each_key_is_marked_in_the_description() -> None:
    config, _ = load_broker(options=["listenPort=1", "lisenPort=2", "aclEnable=true"])
    rows = describe(config, {"listenPort": "--set"})
    assert ("listenPort", "1", "10911", "--set", "used") in rows
    assert ("aclEnable", "true", "false", "default", "accepted without effect") in rows
    assert rows[-1] == ("lisenPort", "2", "", "default", "unknown")
    assert {row.key for row in rows} == {*JAVA_KEYS, *config_module.KEYS.fields, "lisenPort"} | {
        "configName",
        "clusterName",
        "authConfigPath",
    }


def test_the_config_request_gives_javas_keys_and_what_was_given_besides() -> None:
    options = ["listenPort=20911", "namesrvAddr=a:1", "aclEnable=true", "mine=yes"]
    config, _ = load_broker(options=[*options, "aclCacheMaxNum=7"])
    shown = java_properties.parse(to_text(config, {}))
    classes = {key: default for key, (_, default) in java_keys().items() if default is not None}
    # A real broker shows the keys of four of its classes, and of AuthConfig what its file has.
    expected = classes.keys() - AUTH_KEYS | {"rocketmqHome", "namesrvAddr"}
    assert shown.keys() == expected | {"mine", "aclCacheMaxNum"}
    assert (shown["listenPort"], shown["haListenPort"]) == ("20911", "20912")
    assert (shown["aclEnable"], shown["mine"]) == ("true", "yes")
    assert shown["brokerIP2"] == shown["brokerIP1"] == "127.0.0.1"


def test_the_shipped_file_names_every_used_key_and_changes_nothing() -> None:
    config, warnings = load_broker(file=SHIPPED)
    assert warnings == []
    assert config == BrokerConfig()
    lines = SHIPPED.read_text().splitlines()
    named = {
        line[1:].partition(":")[0]: line.partition(": ")[2]
        for line in lines
        if line.startswith("#") and not line.startswith("# ") and ":" in line
    }
    assert named.keys() == config_module.KEYS.fields.keys()


def test_the_shipped_file_shows_the_defaults(tmp_path: Path) -> None:
    text = "\n".join(
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in SHIPPED.read_text().splitlines()
    )
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    config, warnings = load_broker(file=file)
    assert warnings == []
    assert config == BrokerConfig()


def test_the_shipped_file_names_access_control_where_it_warns_of_an_open_port() -> None:
    text = SHIPPED.read_text()
    (comment,) = re.findall(r"\n\n((?:# .*\n)+)#bindAddress:", text)
    assert "authenticationEnabled" in comment
    assert "no passwords" not in text


def controller_mode(*more: str) -> list[str]:
    return ["enableControllerMode=true", "controllerAddr=127.0.0.1:9878;127.0.0.1:9879", *more]


def test_in_controller_mode_every_member_acknowledges_unless_set_otherwise() -> None:
    config, warnings = load_broker(options=controller_mode())
    assert (config.all_ack_in_sync_state_set, warnings) == (True, [])
    assert config.controllers == ["127.0.0.1:9878", "127.0.0.1:9879"]
    config, warnings = load_broker(options=controller_mode("allAckInSyncStateSet=false"))
    assert not config.all_ack_in_sync_state_set
    assert ["can lose acknowledged messages" in one for one in warnings] == [True]
    assert not load_broker()[0].all_ack_in_sync_state_set


def test_in_controller_mode_the_file_needs_no_role_and_no_id() -> None:
    config, _ = load_broker(options=controller_mode("brokerId=-1", "brokerRole=SLAVE"))
    assert config.enable_controller_mode
    with pytest.raises(ConfigError, match="brokerId is -1, but a slave's must be at least 1"):
        load_broker(options=["brokerId=-1", "brokerRole=SLAVE"])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["enableControllerMode=true"], "controllerAddr is empty"),
        (controller_mode("controllerAddr=somewhere"), "controllerAddr names 'somewhere'"),
        (controller_mode("haMasterAddress=127.0.0.1:10912"), "leave haMasterAddress out"),
    ],
)
def test_contradictions_of_controller_mode_are_refused(settings: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_broker(options=settings)


def test_a_broker_open_to_all_warns_what_anyone_can_do() -> None:
    _, (warning,) = load_broker(options=["bindAddress=0.0.0.0"])
    assert "anyone who reaches port 10911 can read and send messages" in warning
    access = ["authenticationEnabled=true", "authorizationEnabled=true"]
    assert load_broker(options=["bindAddress=0.0.0.0", *access])[1] == []
    assert load_broker(options=["bindAddress=::1"])[1] == []


def test_other_settings_change_after_the_file_of_a_secret_has_gone(tmp_path: Path) -> None:
    """A change of role makes the settings of a broker in controller mode like this."""
    secret = tmp_path / "token"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    config = BrokerConfig(http_token=f"file:{secret}", ha_secret=f"file:{secret}")
    secret.unlink()
    changed = msgspec.structs.replace(config, namesrv_addr="127.0.0.1:1")
    assert (changed.namesrv_addr, changed.http_token) == ("127.0.0.1:1", config.http_token)
