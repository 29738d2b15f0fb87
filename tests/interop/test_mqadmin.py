"""The real mqadmin on our servers and on the real ones: the same commands, the same output.

Both clusters are walked through the same story at the same time; then each command's output is
compared after addresses, times and ids are replaced by words, so that what is left is every
column, key, name, number of messages and offset.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from aerobee.harness.clusters import (
    BROKER_NAME,
    CLUSTER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from .programs import SECONDS, Java, Mqadmin, side_by_side, wait_until
from .support import in_words, numbers_out

pytestmark = pytest.mark.smoke  # one story, told once to each cluster

Outputs = dict[str, str]

# What a cluster is made of: the two stand in different folders on different ports.
OWN_SETTINGS = {"listenPort", "haListenPort", "namesrvAddr", "brokerConfigPath"}


def walk(cluster: Cluster, java: Java) -> Outputs:  # noqa: PLR0915 - a story
    """The story: topics, a producer, a consumer, and every command asked about them."""
    admin = Mqadmin(java.start("Admin"))
    name, address = ("-n", cluster.namesrv), ("-b", cluster.broker)
    topic = ("-t", "Story")
    outputs: Outputs = {}

    def note(title: str, *words: str) -> None:
        outputs[title] = admin(*words)

    # A real broker says that it has started before its name server knows.
    admin.until(lambda text: cluster.broker in text, "clusterList", *name)
    note("updateTopic", "updateTopic", *name, *address, *topic, "-r", "4", "-w", "4")
    ordered = ("-c", CLUSTER_NAME, "-t", "Ordered", "-r", "2", "-w", "2", "-o", "true")
    note("updateTopic of a cluster", "updateTopic", *name, *ordered)
    for one in ("Story", "Ordered"):
        admin.until(lambda text: "readQueueNums" in text, "topicRoute", *name, "-t", one)
    note("topicRoute", "topicRoute", *name, *topic)
    note("topicRoute as a list", "topicRoute", *name, *topic, "-l")
    note("topicRoute of an ordered topic", "topicRoute", *name, "-t", "Ordered")
    note("topicStatus of an empty topic", "topicStatus", *name, *topic)

    words: tuple[str, ...] = (
        "sendMessage",
        *name,
        *topic,
        "-p",
        "a body",
        "-k",
        "a-key",
        "-c",
        "a",
    )
    words += ("-b", BROKER_NAME, "-i", "2")
    # A new producer of the tool does not always find the broker at its first try.
    outputs["sendMessage"] = admin.until(lambda text: "not exist" not in text, *words)
    where = ("-b", BROKER_NAME, "-i", "2")
    note("topicStatus", "topicStatus", *name, *topic)
    look = ("queryMsgByOffset", *name, *topic, *where, "-o", "0")
    outputs["queryMsgByOffset"] = admin.until(lambda text: "OffsetID" in text, *look)
    entry = ("queryCq", *name, *topic, *address, "-q", "2", "-i", "0")
    note("queryCq", *entry)
    note("queryCq of an unknown queue", "queryCq", *name, *topic, *address, "-q", "77", "-i", "0")

    note("updateSubGroup", "updateSubGroup", *name, *address, "-g", "StoryGroup")
    note("updateSubGroup of a cluster", "updateSubGroup", *name, "-c", CLUSTER_NAME, "-g", "Other")
    at_work = {"namesrv": cluster.namesrv, "topic": "Story"}
    producer = java.start("Produce", **at_work, group="StoryMakers", count=4, tags="a", hold=True)
    consumer = java.consume(**at_work, group="StoryGroup", tags="a||b")
    producer.wait_event("done", SECONDS)
    wanted = {"a-key", "m-0", "m-1", "m-2", "m-3"}
    wait_until(
        lambda: {each["key"] for each in consumer.events("message")} >= wanted,
        lambda: (cluster.kind, consumer.lines, producer.lines, outputs),
    )
    progress = ("consumerProgress", *name, "-g", "StoryGroup")
    # The group's own retry topic is a row too, as soon as its consumer has seen the route.
    admin.until(lambda text: text.count(BROKER_NAME) == 5 and "Total: 0\n" in text, *progress)
    note("producerConnection", "producerConnection", *name, "-g", "StoryMakers", *topic)
    note("consumerConnection", "consumerConnection", *name, "-g", "StoryGroup")
    note("consumerProgress", *progress)
    note("consumerProgress with clients", *progress, "-s", "true")
    note("consumerProgress of all", "consumerProgress", *name)
    note("queryCq for a group", *entry, "-c", "5", "-g", "StoryGroup")
    note("topicList", "topicList", *name)
    note("topicList of clusters", "topicList", *name, "-c")

    note("clusterList", "clusterList", *name)
    note("clusterList with more", "clusterList", *name, "-m")
    note("brokerStatus", "brokerStatus", *name, *address)
    note("brokerStatus of a cluster", "brokerStatus", *name, "-c", CLUSTER_NAME)
    note("getBrokerConfig", "getBrokerConfig", *name, *address)
    note("getBrokerConfig of a cluster", "getBrokerConfig", *name, "-c", CLUSTER_NAME)

    note("deleteTopic", "deleteTopic", *name, "-c", CLUSTER_NAME, "-t", "Ordered")
    note("topicRoute of a deleted topic", "topicRoute", *name, "-t", "Ordered")
    note("topicStatus of a deleted topic", "topicStatus", *name, "-t", "Ordered")
    note("consumerConnection of nobody", "consumerConnection", *name, *address, "-g", "nobody")
    note("producerConnection of nobody", "producerConnection", *name, *topic, "-g", "nobody")
    note("updateTopic of a bad name", "updateTopic", *name, *address, "-t", "no/topic")
    note("updateTopic of a system topic", "updateTopic", *name, *address, "-t", "TBW102")
    return outputs


@pytest.fixture(scope="module")
def outputs(java: Java, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outputs, Outputs]:
    """What mqadmin printed about ours and about the real one."""
    ours = AerobeeCluster(tmp_path_factory.mktemp("mqadmin-ours"), SMALL_FILES)
    real = JavaCluster(tmp_path_factory.mktemp("mqadmin-real"), flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as clusters, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda cluster: walk(cluster, java), clusters)
    return first, second


ALIKE = [
    "updateTopic",
    "updateTopic of a cluster",
    "topicRoute",
    "topicRoute as a list",
    "topicRoute of an ordered topic",
    "topicStatus of an empty topic",
    "sendMessage",
    "topicStatus",
    "queryMsgByOffset",
    "queryCq",
    "queryCq of an unknown queue",
    "updateSubGroup",
    "updateSubGroup of a cluster",
    "producerConnection",
    "consumerConnection",
    "consumerProgress",
    "consumerProgress with clients",
    "consumerProgress of all",
    "queryCq for a group",
    "deleteTopic",
    "topicRoute of a deleted topic",
    "topicStatus of a deleted topic",
    "consumerConnection of nobody",
    "producerConnection of nobody",
    "updateTopic of a system topic",
]


@pytest.mark.parametrize("title", ALIKE)
def test_mqadmin_prints_the_same_about_ours_as_about_the_real_broker(
    title: str, outputs: tuple[Outputs, Outputs]
) -> None:
    ours, real = outputs
    assert in_words(ours[title]) == in_words(real[title])


def test_the_list_of_topics_holds_the_same_names_in_any_order(
    outputs: tuple[Outputs, Outputs],
) -> None:
    ours, real = (sorted(in_words(each["topicList"])) for each in outputs)
    assert ours == real


def test_the_list_of_topics_and_groups_is_the_same_but_for_a_slip_of_the_real_broker(
    outputs: tuple[Outputs, Outputs],
) -> None:
    ours, real = (sorted(in_words(each["topicList of clusters"])) for each in outputs)
    # 5.3.3 takes the name of the topic for one of the groups that consume it.
    slip = f"{CLUSTER_NAME} Story Story"
    assert slip in real
    assert ours == [line for line in real if line != slip]


def test_a_bad_topic_name_is_refused_with_the_same_code_and_named(
    outputs: tuple[Outputs, Outputs],
) -> None:
    ours, real = (each["updateTopic of a bad name"] for each in outputs)
    assert "CODE: 29" in ours
    assert "CODE: 29" in real
    assert "no/topic" in ours


def test_the_cluster_list_has_the_same_columns_with_the_same_kind_of_values(
    outputs: tuple[Outputs, Outputs],
) -> None:
    ours, real = (numbers_out(in_words(each["clusterList"])) for each in outputs)
    assert ours == real


def test_the_daily_counts_are_the_same_but_for_what_went_out_twice(
    outputs: tuple[Outputs, Outputs],
) -> None:
    ours, real = (in_words(each["clusterList with more"]) for each in outputs)
    assert ours[0] == real[0]
    *most, _ = ours[1].split()
    *as_real, _ = real[1].split()
    # A consumer that takes its queues over again may be handed a message twice.
    assert most == as_real
    assert all(int(each[1].split()[-1]) >= 6 for each in (ours, real))


@pytest.mark.parametrize("title", ["brokerStatus", "brokerStatus of a cluster"])
def test_the_broker_status_has_the_same_keys_with_the_same_kind_of_values(
    title: str, outputs: tuple[Outputs, Outputs]
) -> None:
    ours, real = (pairs(each[title], ":") for each in outputs)
    assert len(real) > 50
    assert ours.keys() == real.keys()
    for key in sorted(real):
        if real[key] != "null":  # a histogram, once the real broker has taken its first sample
            assert numbers_out([ours[key]]) == numbers_out([real[key]]), key
    assert ours["brokerVersionDesc"] == real["brokerVersionDesc"]


@pytest.mark.parametrize("title", ["getBrokerConfig", "getBrokerConfig of a cluster"])
def test_the_broker_config_has_the_same_keys_and_what_was_set_has_the_same_values(
    title: str, outputs: tuple[Outputs, Outputs]
) -> None:
    ours, real = (pairs(each[title], "=") for each in outputs)
    assert len(real) > 400
    # The real broker shows what its file holds, also a key that is only ours.
    assert ours.keys() == real.keys() - {"httpPort"}
    set_by_us = {"brokerName", "brokerClusterName", "brokerId", "flushDiskType", "brokerIP1"}
    defaults = {
        "defaultTopicQueueNums",
        "maxMessageSize",
        "fileReservedTime",
        "autoCreateTopicEnable",
    }
    for key in set_by_us | defaults:
        assert ours[key] == real[key], key


def pairs(output: str, divider: str) -> dict[str, str]:
    """The `key divider value` lines of an output."""
    # With -c each line begins with the broker's address; one key ends with the store's folder.
    line_form = re.compile(rf"(?:127\.0\.0\.1:\d+ +)?([^\s/]+)(?:/\S+)?\s*{divider}(.*)")
    found = (line_form.fullmatch(line) for line in output.splitlines() if "=====" not in line)
    return {each[1]: each[2].strip() for each in found if each}
