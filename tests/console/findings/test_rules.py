"""The doctor's rules: what each finds, and that it is silent about what is well."""

from datetime import datetime
from typing import Any

import pytest
from aerobee.client.errors import BrokerError, UnreachableError
from aerobee.console.findings.replicas import Replica, Replicas, told
from aerobee.console.findings.rules import (
    Cure,
    Finding,
    by_severity,
    dead_letters,
    does_not_answer,
    no_broker,
    no_master,
    no_response,
    nobody_online,
    of_broker,
    of_clock,
    of_group,
    of_replicas,
    of_retention,
    of_slaves,
    of_topic,
    on_one_broker,
    slaves_needed,
)
from aerobee.console.texts import Text
from aerobee.console.web.languages import CHINESE
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.clients import Connection, ConsumerConnection
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.ha import HAConnectionRuntimeInfo, HARuntimeInfo
from aerobee.protocol.bodies.route import QueueData
from aerobee.protocol.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)
from aerobee.protocol.bodies.subscription import subscription

SETTINGS = {"brokerPermission": "6", "diskMaxUsedSpaceRatio": "75"}


def one(findings: list[Finding]) -> str:
    """The text of the only finding, with where it is. Each part of it is Chinese, too."""
    (found,) = findings
    assert found.do
    assert_chinese(found.where, found.what, found.do)
    return f"{found.where}: {found.what}"


def assert_chinese(*texts: Text) -> None:
    """Each text, and each text in it, has its own in Chinese."""
    for text in texts:
        assert text.pattern in CHINESE.texts, "a text of a finding is a Text with a translation"
        assert_chinese(*(one for one in text.values.values() if isinstance(one, Text)))


def disk(percent: int, **settings: str) -> list[Finding]:
    runtime = {"commitLogDiskRatio": str(percent / 100)}
    return list(of_broker("b", runtime, SETTINGS | settings))


# --- retention ------------------------------------------------------------------------------------


def test_a_topic_that_keeps_the_log_longer_than_others_is_told_with_both_times() -> None:
    hours = {"retention.ms": str(100 * 3_600_000)}
    said = one([*of_retention("T", hours, {"fileReservedTime": "48"}, "b")])
    assert said.startswith("topic T: its retention.ms is 100 hours, and broker b keeps other ")
    assert "topics for 48: each file of the log that has a message of it stays" in said
    assert not [*of_retention("T", hours, {"fileReservedTime": "100"}, "b")]
    assert not [*of_retention("T", {}, {}, "b")]


def test_files_that_stay_for_a_group_are_told_with_their_size_and_age() -> None:
    runtime = {
        "logHeldBytes": str(3 << 30),
        "logHeldSince": str(1_700_000_000_000),
        "logHeldBy": "lake;orders;3",
    }
    said = one(list(of_broker("b", runtime, SETTINGS)))
    since = datetime.fromtimestamp(1_700_000_000).astimezone().isoformat(" ", "minutes")
    assert said == (
        f"broker b: 3,072 MiB of its log are past fileReservedTime, the oldest since {since}, and "
        "stay until group lake has read them (retainUntilConsumedBy), in queue 3 of topic orders "
        "first"
    )


def test_each_group_that_holds_nothing_is_told() -> None:
    runtime = {"groupsHoldingNothing": "lkae;other"}
    first, second = of_broker("b", runtime, SETTINGS)
    assert one([first]) == (
        "broker b: retainUntilConsumedBy names group lkae, which has no offset here, so nothing is "
        "kept for it"
    )
    assert "group other" in one([second])


# --- brokers --------------------------------------------------------------------------------------


def test_a_broker_that_refuses_sends_is_told_with_its_reason() -> None:
    runtime = {"notStored": "it takes no messages: the disk did not take a sync"}
    said = one(list(of_broker("b", runtime, SETTINGS)))
    assert said == "broker b: it reports: it takes no messages: the disk did not take a sync"


@pytest.mark.parametrize(
    ("percent", "says"),
    [
        (71, "71 % full, from 75 % on messages are deleted before their time"),
        (75, "75 % full, from 75 % on"),
        (76, "76 % full, above 75 % messages are deleted before their time"),
        (90, "90 % full, above 75 %"),
        (91, "91 % full, above 90 % it refuses sends"),
    ],
)
def test_a_disk_near_a_limit_or_above_it(percent: int, says: str) -> None:
    assert f"broker b: its disk is {says}" in one(disk(percent))


def test_a_disk_with_room_and_limits_of_its_own() -> None:
    assert disk(70) == []
    assert disk(80, diskMaxUsedSpaceRatio="95") == []
    assert "above 50 % it refuses" in one(disk(51, diskSpaceWarningLevelRatio="50"))


@pytest.mark.parametrize(
    ("perm", "says"), [("4", "takes no messages"), ("2", "hands out no messages")]
)
def test_a_broker_that_may_not_be_written_or_read(perm: str, says: str) -> None:
    found = one(list(of_broker("b", {}, {"brokerPermission": perm})))
    assert found == f"broker b: it {says}: brokerPermission is {perm}"


def test_a_broker_without_numbers_is_taken_to_be_well() -> None:
    assert list(of_broker("b", {"commitLogDiskRatio": "?"}, {})) == []


def test_a_group_whose_members_subscribe_differently() -> None:
    found = one(list(of_broker("b", {"subscriptionsDiffer_g_1": "topic T: a / b"}, SETTINGS)))
    assert found.startswith("group g_1: its members subscribe differently")
    assert found.endswith("topic T: a / b")


# --- topics ---------------------------------------------------------------------------------------


def queues(topic: str, *bounds: tuple[int, int]) -> TopicStatsTable:
    return TopicStatsTable(
        {
            MessageQueue(topic, "b", number): TopicOffset(low, high, 1)
            for number, (low, high) in enumerate(bounds)
        }
    )


def test_messages_in_queues_that_are_no_longer_read() -> None:
    stats = queues("T", (0, 1), (5, 8), (2, 4))
    found = one(list(of_topic("T", [QueueData("b", 1, 3, 6)], stats, ["g"])))
    assert found == "topic T: 5 messages are in queues that are no longer read"
    assert list(of_topic("T", [QueueData("b", 3, 3, 6)], stats, ["g"])) == []


def test_a_topic_that_can_not_be_read() -> None:
    found = one(list(of_topic("T", [QueueData("b", 4, 4, 2)], queues("T"), ["g"])))
    assert found == "topic T: it can't be read on broker b: its permission is 2"


def test_a_topic_that_nobody_has_ever_read() -> None:
    data = [QueueData("b", 4, 4, 6)]
    found = one(list(of_topic("T", data, queues("T", (-1, 0), (0, 2)), [])))
    assert found == "topic T: it has 2 messages, and no group has ever read it"
    assert list(of_topic("T", data, queues("T", (-1, 0)), [])) == []
    assert list(of_topic("%RETRY%g", data, queues("%RETRY%g", (0, 2)), [])) == []


def test_messages_that_a_group_gave_up() -> None:
    data = [QueueData("b", 1, 1, 6)]
    found = one(list(of_topic("%DLQ%g", data, queues("%DLQ%g", (3, 5)), [])))
    assert found == "group g: 2 messages failed until it gave up"
    assert list(of_topic("%DLQ%g", data, queues("%DLQ%g", (5, 5)), [])) == []


# --- groups ---------------------------------------------------------------------------------------


def progress(*pairs: tuple[int, int], topic: str = "T") -> ConsumeStats:
    """Consumed and end of each queue."""
    return ConsumeStats(
        {
            MessageQueue(topic, "b", number): OffsetWrapper(end, consumed)
            for number, (consumed, end) in enumerate(pairs)
        }
    )


def members(*topics: str) -> ConsumerConnection:
    return ConsumerConnection(
        [Connection("c1")], {name: subscription(name, "*") for name in topics}
    )


ON = SubscriptionGroupConfig("g")


def test_a_backlog_without_a_member() -> None:
    for online in (None, ConsumerConnection()):
        found = one(list(of_group("g", ON, online, progress((1, 4), (5, 5)), {})))
        assert found == "group g: it has no member online, and at most 3 messages wait for it"


def test_a_group_of_spark_has_no_consumers_to_start() -> None:
    spark = "aerobee-spark"
    (found,) = of_group(spark, SubscriptionGroupConfig(spark), None, progress((1, 4)), {})
    assert "consumers" not in found.do
    assert "run its query on" in found.do
    assert_chinese(found.do)
    assert list(of_group("g", ON, None, progress((4, 4)), {})) == []
    assert list(of_group("g", ON, members("T"), progress((1, 4)), {})) == []


def test_a_backlog_of_a_topic_that_nobody_subscribes_to_any_more() -> None:
    found = one(list(of_group("g", ON, members("U"), progress((1, 4)), {})))
    assert "at most 3 messages wait in topic T, which no member subscribes to any more" in found


def test_messages_that_were_deleted_before_they_were_consumed() -> None:
    topics = {"T": queues("T", (10, 20), (0, 5))}
    found = one(list(of_group("g", ON, members("T"), progress((4, 20), (5, 5)), topics)))
    assert found == "group g: 6 messages of topic T were deleted before it consumed them"
    # A queue that the group never was in says 0, too.
    assert list(of_group("g", ON, members("T"), progress((0, 20), (5, 5)), topics)) == []


def test_a_group_that_is_switched_off() -> None:
    off = SubscriptionGroupConfig("g", consume_enable=False)
    found = one(list(of_group("g", off, members("T"), progress((1, 4)), {})))
    assert "consumeEnable is false), 3 messages wait" in found


SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


def slaves(*diffs: int) -> HARuntimeInfo:
    """What a master says of slaves that are so far behind, of which 1,000 bytes are too much."""
    return HARuntimeInfo(
        True, 5_000, 0, [HAConnectionRuntimeInfo(f"s{d}:1", 0, d, d < 1_000) for d in diffs]
    )


def test_a_master_that_waits_for_slaves_which_are_away_is_told() -> None:
    assert slaves_needed({"brokerRole": "SYNC_MASTER"}) == 0
    assert slaves_needed({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "3"}) == 0
    found = one(list(of_slaves("b", SYNC, 1, slaves())))
    assert "waits for 1 of its slaves and 0 follow it" in found
    assert "FLUSH_SLAVE_TIMEOUT" in found
    assert list(of_slaves("b", SYNC, 1, slaves(0))) == []


def test_slaves_that_do_not_follow_or_are_behind_are_told() -> None:
    found = one(list(of_slaves("b", {}, 2, slaves(0))))
    assert found == "broker b: 1 of its 2 slaves follow its log"
    found = one(list(of_slaves("b", {}, 1, slaves(4_000))))
    assert found == "broker b: its slave at s4000:1 is 4,000 bytes behind"


def test_a_lost_master_and_who_can_take_its_place() -> None:
    assert no_master("b", {}).do == "start it"
    assert "stop slave 1 at s:1 and start it with" in no_master("b", {2: "t:1", 1: "s:1"}).do


# --- clocks, addresses, clusters ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "says"),
    [
        (1_000, 1_010, "its clock is 7,273 s ahead of the one of this machine"),
        (7_999_000, 7_999_010, "its clock is 724 s behind the one of this machine"),
        # It says whole seconds: this is 0.9 s and 1.9 s away at most, and less than that at least.
        (7_274_000, 7_274_500, ""),
        (7_275_900, 7_276_000, ""),
        (7_273_100, 7_273_200, ""),
    ],
)
def test_a_clock_that_differs_is_told_and_one_that_may_be_right_is_not(
    before_ms: int, after_ms: int, says: str
) -> None:
    runtime = {
        "bootTimestamp": "70000",
        "runtime": "[ 0 days, 2 hours, 0 minutes, 4 seconds ]",
    }
    found = list(of_clock("b", runtime, before_ms, after_ms))
    assert [each.what for each in found] == ([says] if says else [])
    assert list(of_clock("b", {"runtime": "?"}, before_ms, after_ms)) == []


def test_a_broker_that_does_not_answer_may_tell_a_wrong_address() -> None:
    found = no_response("b", "10.255.255.1:1", UnreachableError("can't connect to 10.255.255.1:1"))
    assert "the address that it tells clients" in found.what
    assert "if it runs, set brokerIP1 to an address that works from here" in found.do
    found = no_response("b", "x:1", BrokerError(16, "no permission", "x:1"))
    assert "examine it as a user who may (AEROBEE_ACCESS_KEY" in found.do


def test_a_topic_on_one_of_several_brokers_is_told() -> None:
    clusters = {"one": ["a", "b"], "two": ["c"]}
    found = one(list(on_one_broker("T", [QueueData("a", 4, 4, 6)], clusters)))
    assert found.startswith("topic T: it is on broker a alone, of the 2 in one (a first send makes")
    both = [QueueData("a", 4, 4, 6), QueueData("b", 4, 4, 6)]
    assert list(on_one_broker("T", both, clusters)) == []
    for topic in ("%RETRY%g", "%DLQ%g"):
        assert list(on_one_broker(topic, [QueueData("a", 1, 1, 6)], clusters)) == []
    assert list(on_one_broker("T", [QueueData("c", 4, 4, 6)], clusters)) == []


def test_one_message_is_said_as_one() -> None:
    found = one(list(of_group("g", ON, None, progress((3, 4)), {})))
    assert found == "group g: it has no member online, and at most 1 message waits for it"
    topics = {"T": queues("T", (5, 20))}
    found = one(list(of_group("g", ON, members("T"), progress((4, 20)), topics)))
    assert found == "group g: 1 message of topic T was deleted before it consumed them"


# --- controller mode ------------------------------------------------------------------------------


def replica(broker_id: int, **changes: Any) -> Replica:
    found = Replica(broker_id, f"h:{broker_id}", is_alive=True, is_in_set=True, epoch=3, log_end=9)
    return found._replace(**changes)


def of_members(*members: Replica, master_id: int | None = 1, epoch: int = 3) -> list[Finding]:
    return list(of_replicas("b", Replicas("c:1", master_id, epoch, 5, list(members))))


def test_members_that_are_away_or_behind_are_found() -> None:
    assert not of_members(replica(1), replica(2))
    away = of_members(replica(1), replica(2, is_alive=False, is_in_set=False))
    assert one(away) == "broker b: member 2 at h:2 sends no heartbeats"
    behind = of_members(replica(1), replica(2, is_in_set=False))
    assert "member 2 at h:2 is not in the sync state set" in one(behind)


def test_a_name_without_an_election_is_found() -> None:
    without = of_members(replica(1), replica(2), master_id=None)
    assert "no live broker has every acknowledged message (1, 2 had)" in one(without)
    lost = of_members(replica(1, epoch=4), replica(2), master_id=None)
    assert "know master epoch 4, controller c:1 only 3" in one(lost)
    assert "aerobee controller rebuild b -a c:1" in lost[0].do


def test_a_broker_name_is_told_in_a_line() -> None:
    members = [replica(1), replica(2), replica(3, is_in_set=False)]
    line = told("b", Replicas("c:1", 2, 3, 5, members), "12:00")
    assert line == (
        "broker b: master 2 at h:2, epoch 3 since 12:00, sync state set 1, 2 (number 5), members "
        "1, 2, 3; controller c:1"
    )
    assert "no master, epoch 3, sync" in told("b", Replicas("c:1", None, 3, 5, members), "")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7"])
def test_a_broker_that_serves_anyone_is_found(address: str) -> None:
    runtime = {"aerobeeVersion": "0.2.0"}
    found = one(list(of_broker("b", runtime, SETTINGS | {"bindAddress": address})))
    assert f"bindAddress is {address} without access control" in found
    closed = {"bindAddress": address, "authenticationEnabled": "true"}
    assert list(of_broker("b", runtime, SETTINGS | closed)) == []
    assert list(of_broker("b", runtime, SETTINGS | {"bindAddress": "127.0.0.1"})) == []
    assert list(of_broker("b", {}, SETTINGS | {"bindAddress": address})) == []  # a Java broker


def test_findings_are_told_once_and_the_most_urgent_first() -> None:
    away = does_not_answer("b", "127.0.0.1:1", "refused")
    letters, waits = dead_letters("g", 3), nobody_online("g", 5)
    (note,) = of_topic("t", [], queues("t", (0, 3)), [])
    assert by_severity([note, waits, letters, away, waits]) == [away, letters, waits, note]
    assert [one.severity for one in (away, letters, note)] == ["error", "warning", "note"]
    assert letters.about == ("group", "g")
    assert letters.cure == Cure("redrive", "group")
    assert no_broker().about is None
