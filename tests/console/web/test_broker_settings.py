"""Defaults and groups of brokers' settings: those of aerobee as its brokers tell them, those of
RocketMQ as its classes have them."""

from pathlib import Path

import pytest
from aerobee.broker.settings.config import BrokerConfig, to_text
from aerobee.client.admin.brokers import AEROBEE_VERSION
from aerobee.console.clusters.samples import BrokerSample
from aerobee.console.web.answers import Setting
from aerobee.console.web.broker_settings import (
    AEROBEE,
    OTHER,
    PLACES,
    PROCESSORS,
    ROCKETMQ,
    SETTING_GROUPS,
    defaults,
    differing,
    group_of,
    put_ms,
    settings_of,
    version_of_defaults,
)
from aerobee.protocol.codec import java_properties

GOLDEN = Path(__file__).parents[2] / "golden" / "broker_config_keys.txt"
# A broker computes this one at its start, from what its filters expect.
RUNNING = {"bitMapLengthConsumeQueueExt": "112"}
# What no other group is about.
OTHERS = {
    "configBlackList",
    "configManagerVersion",
    "disappearTimeAfterStart",
    "enableCreateSysGroup",
    "startAcceptSendRequestTimeStamp",
}


def sample(**runtime: str) -> BrokerSample:
    return BrokerSample("main", "broker-a", 0, "127.0.0.1:1", runtime)


OURS = sample(**{AEROBEE_VERSION: "1"})
JAVAS = sample(brokerVersionDesc="V5_3_3")


def changed(broker: BrokerSample, values: dict[str, str]) -> dict[str, Setting]:
    return {one["name"]: one for one in settings_of(broker, values) if one["differs"]}


def told(config: BrokerConfig) -> dict[str, str]:
    return java_properties.parse(to_text(config, {}))


def test_every_setting_of_ours_has_a_group_and_a_default_or_is_of_the_machine() -> None:
    rows = settings_of(OURS, told(BrokerConfig()))
    assert len(rows) > 300
    for one in rows:
        assert one["differs"] is (None if one["is_of_machine"] else False), one
    assert {one["name"] for one in rows if one["group"] == OTHER} <= OTHERS


def test_what_is_changed_differs_and_has_its_default_beside() -> None:
    config = BrokerConfig(
        file_reserved_time=48, listen_port=1, broker_name="b", namesrv_addr="ns:9876"
    )
    found = changed(OURS, told(config))
    assert {name: (one["value"], one["default"]) for name, one in found.items()} == {
        "fileReservedTime": ("48", "72"),
        "namesrvAddr": ("ns:9876", None),
    }


def test_a_default_follows_from_other_settings() -> None:
    config = BrokerConfig(enable_controller_mode=True, controller_addr="c:1")
    assert changed(OURS, told(config)).keys() == {"enableControllerMode", "controllerAddr"}
    config = BrokerConfig(
        enable_controller_mode=True, controller_addr="c:1", all_ack_in_sync_state_set=False
    )
    assert changed(OURS, told(config))["allAckInSyncStateSet"]["default"] == "true"
    # RocketMQ takes ten off this one on a slave.
    slave = {"brokerRole": "SLAVE", "accessMessageInMemoryMaxRatio": "30"}
    assert changed(JAVAS, slave).keys() == {"brokerRole"}
    assert "accessMessageInMemoryMaxRatio" in changed(JAVAS, slave | {"brokerRole": "ASYNC_MASTER"})


def test_the_defaults_of_rocketmq_are_those_of_its_classes() -> None:
    classes: dict[str, str | None] = {}
    for line in GOLDEN.read_text().splitlines():
        if not line.startswith("#"):
            key, equals, default = line.split(" ", 2)[2].partition("=")
            classes.setdefault(key, default if equals else None)
    found = defaults(ROCKETMQ)
    assert found.keys() == classes.keys() - PLACES - PROCESSORS
    for key, value in found.items():
        assert value == RUNNING.get(key, classes[key]), key
    assert {key for key in found if group_of(key) == OTHER} == OTHERS


def test_a_broker_at_the_defaults_has_nothing_that_differs() -> None:
    for kind, broker in ((AEROBEE, OURS), (ROCKETMQ, JAVAS)):
        values = {key: value for key, value in defaults(kind).items() if value is not None}
        values |= dict.fromkeys(PLACES | PROCESSORS, "its own")
        assert changed(broker, values) == {}


def test_a_name_that_the_defaults_lack_has_none_that_is_known() -> None:
    (one,) = settings_of(sample(brokerVersionDesc="V4_9_8"), {"gone": "1"})
    assert (one["differs"], one["default"], one["is_of_machine"]) == (None, None, False)


@pytest.mark.parametrize(
    ("runtime", "of", "is_same"),
    [
        ({"brokerVersionDesc": "V5_3_3"}, "RocketMQ 5.3.3", True),
        ({"brokerVersionDesc": "V4_9_8"}, "RocketMQ 5.3.3", False),
        ({}, "RocketMQ 5.3.3", False),
        ({AEROBEE_VERSION: "0.0.0.dev0+none"}, "aerobee", False),
    ],
)
def test_the_version_of_the_defaults_is_told(
    runtime: dict[str, str], of: str, is_same: bool
) -> None:
    found, same = version_of_defaults(sample(**runtime))
    assert (found.startswith(of), same) == (True, is_same)


def test_each_group_has_settings_and_their_order_is_that_of_the_page() -> None:
    rows = settings_of(OURS, told(BrokerConfig()))
    order = list(dict.fromkeys(one["group"] for one in rows))
    assert set(order) >= {group for group, _ in SETTING_GROUPS}
    assert order[-1] == OTHER
    names = [one["name"] for one in rows if one["group"] == order[1]]
    assert names == sorted(names)


def test_what_differs_of_the_machine_is_last_and_defaults_of_both_kinds_are_told() -> None:
    brokers = {"a:0": OURS, "b:0": JAVAS}
    values = {
        "a:0": {"brokerName": "a", "timerMaxDelaySec": "5", "traceOn": "true", "key": "1"},
        "b:0": {"brokerName": "b", "timerMaxDelaySec": "6", "traceOn": "true"},
    }
    first, second, third = differing(brokers, values)
    assert (first["name"], first["values"], first["defaults"]) == (
        "key",
        {"a:0": "1", "b:0": None},
        [],
    )
    assert second["defaults"] == [
        defaults(AEROBEE)["timerMaxDelaySec"],
        defaults(ROCKETMQ)["timerMaxDelaySec"],
    ]
    assert (third["name"], third["is_of_machine"], third["defaults"]) == ("brokerName", True, [])


@pytest.mark.parametrize(
    ("text", "ms"), [("1.25", 1.25), ("0.00", 0.0), ("nan", None), ("", None), ("9" * 400, None)]
)
def test_the_latency_of_rocketmqs_brokers_is_a_number_or_not_known(
    text: str, ms: float | None
) -> None:
    assert put_ms(sample(putLatency99=text)) == ms
    assert put_ms(sample(putLatency99="1", **{AEROBEE_VERSION: "1"})) is None  # it is not measured
