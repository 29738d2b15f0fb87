"""Members that subscribe differently are found, named in the log and told on."""

import logging

import pytest
from aerobee.broker.groups.subscription_check import SubscriptionCheck
from aerobee.protocol import codes
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.bodies.subscription import subscription

from ..parts import Parts, Wire, connection_of

Says = dict[str, str]  # topic -> tag expression


def heard(
    subscription_check: SubscriptionCheck,
    wire: Wire,
    name: str,
    says: Says,
    *,
    model: str = "CLUSTERING",
    kind: str = "TAG",
) -> None:
    wanted = [subscription(topic, text, kind) for topic, text in says.items()]
    consumer = ConsumerData("g", "CONSUME_PASSIVELY", model, None, wanted)
    subscription_check.heard(connection_of(wire), name, consumer)


@pytest.fixture
def subscription_check() -> SubscriptionCheck:
    return SubscriptionCheck("g")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"T": "*"}, {"T": "*"}),
        ({"T": "a || b"}, {"T": "b||a"}),
        ({"T": "a", "U": "*"}, {"U": "", "T": "a"}),
        ({"T": "a", "%RETRY%g": "*"}, {"T": "a"}),
        ({}, {}),
    ],
)
def test_who_says_the_same_in_other_words_agrees(
    subscription_check: SubscriptionCheck, one: Says, two: Says
) -> None:
    heard(subscription_check, Wire(), "c1", one)
    heard(subscription_check, Wire(), "c2", two)
    assert not subscription_check.differs
    assert subscription_check.describe() == ""


@pytest.mark.parametrize(
    ("one", "two", "text"),
    [
        ({"T": "a"}, {"T": "b"}, "topic T: c1: tags a / c2: tags b"),
        ({"T": "a"}, {"T": "*"}, "topic T: c2: all messages / c1: tags a"),
        ({"T": "*"}, {"T": "*", "U": "*"}, "topic U: c2: all messages / c1: no subscription"),
        (
            {"T": "*"},
            {"U": "*"},
            "topic T: c1: all messages / c2: no subscription; "
            "topic U: c2: all messages / c1: no subscription",
        ),
    ],
)
def test_who_says_something_else_is_named(
    subscription_check: SubscriptionCheck, one: Says, two: Says, text: str
) -> None:
    heard(subscription_check, Wire(), "c1", one)
    heard(subscription_check, Wire(), "c2", two)
    assert subscription_check.differs
    assert subscription_check.describe() == text


def test_expressions_and_message_models_count_as_well(
    subscription_check: SubscriptionCheck,
) -> None:
    heard(subscription_check, Wire(), "c1", {"T": "a > 1"}, kind="SQL92")
    heard(subscription_check, Wire(), "c2", {"T": "a > 1"}, kind="SQL92", model="BROADCASTING")
    assert subscription_check.describe() == "message model: c2: BROADCASTING / c1: CLUSTERING"
    heard(subscription_check, Wire(), "c3", {"T": "a > 2"}, kind="SQL92")
    assert subscription_check.describe().endswith("topic T: c1, c2: SQL92 a > 1 / c3: SQL92 a > 2")


def test_two_members_under_one_client_id_are_told_apart(
    subscription_check: SubscriptionCheck,
) -> None:
    heard(subscription_check, Wire(), "same", {"T": "a"})
    heard(subscription_check, Wire(), "same", {"T": "b"})
    assert subscription_check.describe() == "topic T: same: tags a / same: tags b"


def test_a_description_stays_short(subscription_check: SubscriptionCheck) -> None:
    heard(subscription_check, Wire(), "odd", {f"T{n}": "x" * 5_000 for n in range(8)})
    for number in range(20):
        heard(subscription_check, Wire(), f"c{number}", {f"T{n}": "*" for n in range(8)})
    text = subscription_check.describe()
    assert "c0, c1, c10 and 17 more: all messages / odd: tags xxx" in text
    assert text.endswith("; and 3 more topics")
    assert len(text) < 2_000


def test_they_agree_again_when_one_changes_its_mind_or_leaves(
    subscription_check: SubscriptionCheck,
) -> None:
    one, two = Wire(), Wire()

    def differs() -> bool:
        return subscription_check.differs

    heard(subscription_check, one, "c1", {"T": "a"})
    heard(subscription_check, two, "c2", {"T": "b"})
    heard(subscription_check, one, "c1", {"T": "b"})
    assert not differs()
    heard(subscription_check, one, "c1", {"T": "a"})
    assert differs()
    subscription_check.left(connection_of(one))
    subscription_check.left(connection_of(one))
    assert not differs()


def test_the_log_names_a_group_once_and_says_when_it_is_over(
    subscription_check: SubscriptionCheck, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one, two = Wire(), Wire()
    heard(subscription_check, one, "c1", {"T": "a"})
    assert caplog.messages == []
    for _ in range(3):
        heard(subscription_check, two, "c2", {"T": "b"})
    (line,) = caplog.messages
    assert "members of group g subscribe differently" in line
    assert "topic T: c1: tags a / c2: tags b; give all members the same" in line
    subscription_check.left(connection_of(two))
    assert caplog.messages[1:] == ["the members of group g subscribe alike again"]


def test_the_broker_tells_it_to_whoever_asks(parts: Parts) -> None:
    parts.join("g", {"T": "a"}, client_id="c1")
    assert not any(name.startswith("subscriptionsDiffer") for name in runtime(parts))
    wire = parts.join("g", {"T": "b"}, client_id="c2")
    text = "topic T: c1: tags a / c2: tags b"
    assert dict(filter(None, parts.clients.differing())) == {"g": text}
    assert runtime(parts)["subscriptionsDiffer_g"] == text
    parts.clients.lost(connection_of(wire))
    assert dict(filter(None, parts.clients.differing())) == {}


def test_a_heartbeat_without_subscriptions_changes_nothing(parts: Parts) -> None:
    parts.join("g", {"T": "a"}, client_id="c1")
    wire = parts.join("g", {"T": "b"}, client_id="c2")
    bare = HeartbeatData("c2", [], [ConsumerData("g")], without_sub=True)
    parts.clients.register(bare, connection_of(wire), "JAVA", 479, 0, list)
    assert dict(filter(None, parts.clients.differing())) == {
        "g": "topic T: c1: tags a / c2: tags b"
    }


def runtime(parts: Parts) -> dict[str, str]:
    body = parts.ask(codes.GET_BROKER_RUNTIME_INFO).body
    assert isinstance(body, bytes)
    return KVTable.decode(body).table
