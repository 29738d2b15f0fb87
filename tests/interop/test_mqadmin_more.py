"""The rest of the real mqadmin's commands on our servers and on the real ones: messages, offsets,
settings, files, access control.

As in test_mqadmin both clusters are walked through one story at the same time. Which commands there
are, mqadmin itself says: one that is neither walked through nor excepted with a reason is an error.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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

TOPIC, GROUP = "More", "MoreGroup"
KEPT = "enableNotifyAfterPopOrderLockRelease"  # has no effect here
FAR_MS = "4102444800000"  # a time after all messages
MANY = "with a controller, a container or RocksDB: not served"
STATIC = "walked through in test_static_topics, with two brokers"
NOT_WALKED = {
    **dict.fromkeys(("addBroker", "removeBroker"), MANY),
    **dict.fromkeys(("getSyncStateSet", "getControllerMetaData", "getControllerConfig"), MANY),
    **dict.fromkeys(("updateControllerConfig", "electMaster", "cleanBrokerMetadata"), MANY),
    **dict.fromkeys(("exportMetadataInRocksDB",), MANY),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), STATIC),
    "dumpCompactionLog": "it reads a file, and asks no server",
    "startMonitoring": "it never ends; what it asks, consumerProgress and consumerStatus ask, too",
    "clusterRT": "it never ends; what it sends, checkMsgSendRT sends, too",
}


class Walk:
    """One story: each command's output under its title. `files` are what exports have written."""

    def __init__(self, cluster: Cluster, java: Java, folder: Path) -> None:
        self.cluster = cluster
        self.outputs: dict[str, str] = {}
        self.files: dict[str, Any] = {}
        self.commands: set[str] = set()
        self._java = java
        self._folder = folder
        self.admin = Mqadmin(java.start("Admin"))

    def note(self, title: str, *words: str) -> str:
        """Run a command (the first of the words, or the title) and keep what it printed."""
        found = self.outputs[title] = self.admin(*self._command(title, words))
        return found

    def until(self, wanted: str, *words: str) -> str:
        """Run a command until this is part of what it prints."""
        return self.admin.until(lambda text: wanted in text, *self._command(words[0], words))

    def _command(self, title: str, words: tuple[str, ...]) -> tuple[str, ...]:
        command = words if words and not words[0].startswith("-") else (title, *words)
        self.commands.add(command[0])
        return (command[0], "-n", self.cluster.namesrv, *command[1:])

    def tell(self) -> None:
        """The whole story."""
        self.topics_and_groups()
        self.messages()
        self.offsets()
        self.name_server()
        self.looking_after()
        self.exports()
        self.access_control()
        self.settings()

    def topics_and_groups(self) -> None:
        note, on, of_all = self.note, ("-b", self.cluster.broker), ("-c", CLUSTER_NAME)
        self.until(self.cluster.broker, "clusterList")
        note("updateTopic", *on, "-t", TOPIC, "-r", "1", "-w", "1")
        self.until("readQueueNums", "topicRoute", "-t", TOPIC)
        plain = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        topics = [
            {"topicName": f"List{n}", "readQueueNums": n, "writeQueueNums": n, **plain}
            for n in (1, 2)
        ]
        note("updateTopicList", *on, "-f", self._write("topics.json", topics))
        groups = [{"groupName": "List1"}, {"groupName": "List2", "retryMaxTimes": 3}]
        note("updateSubGroupList", *on, "-f", self._write("groups.json", groups))
        self.until("readQueueNums", "topicRoute", "-t", "List2")
        flags: tuple[str, ...] = (
            "-o",
            "true",
            "-u",
            "true",
            "-s",
            "true",
            "-a",
            "+message.type=FIFO",
        )
        sizes: tuple[str, ...] = ("-t", "Opt", "-r", "3", "-w", "3", "-p", "6")
        note("updateTopic with all options", "updateTopic", *of_all, *sizes, *flags)
        self.until("readQueueNums", "topicRoute", "-t", "Opt")
        note("updateTopicPerm of a cluster", "updateTopicPerm", *of_all, "-t", "Opt", "-p", "2")
        note("topicRoute with all options", "topicRoute", "-t", "Opt", "-l")
        policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000]}}'
        flags = ("-s", "true", "-m", "true", "-d", "false", "-o", "true", "-a", "false")
        sizes = ("-q", "3", "-r", "5", "-i", "1", "-w", "2", "-p", policy)
        note("updateSubGroup with all options", "updateSubGroup", *on, "-g", "Opt", *flags, *sizes)
        note("getConsumerConfig with all options", "getConsumerConfig", "-g", "Opt")
        note("topicClusterList", "-t", TOPIC)
        note("updateTopicPerm", *on, "-t", TOPIC, "-p", "4")
        note("updateTopicPerm to what it is", "updateTopicPerm", *on, "-t", TOPIC, "-p", "4")
        note("updateTopicPerm back", "updateTopicPerm", *on, "-t", TOPIC, "-p", "6")
        note("getConsumerConfig", "-g", "List2")
        note("getConsumerConfig of nobody", "getConsumerConfig", "-g", "Nobody")
        note("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2")

    def messages(self) -> None:  # noqa: PLR0915 - a story
        note = self.note
        self.until('"perm":6', "topicRoute", "-t", TOPIC)
        for number in range(3):
            where = ("-t", TOPIC, "-b", BROKER_NAME, "-i", "0")
            words = ("-p", f"body {number}", "-k", f"k-{number}", "-c", "a")
            self.until("SEND_OK", "sendMessage", *where, *words)
        consumer = self._java.consume(namesrv=self.cluster.namesrv, topic=TOPIC, group=GROUP)
        wait_until(lambda: len(consumer.events("message")) >= 3, lambda: consumer.lines)
        self.until("Total: 0\n", "consumerProgress", "-g", GROUP)
        client = consumer.events("started")[0]["client"]
        first = ("-t", TOPIC, "-b", BROKER_NAME, "-i", "0", "-o", "0")
        shown = self.until("OffsetID", "queryMsgByOffset", *first)
        ids = {name: re.search(rf"{name}:\s+(\w+)", shown) for name in ("OffsetID", "UNIQ_KEY")}
        offset_id = ids["OffsetID"][1]  # type: ignore[index]
        unique = re.search(r"UNIQ_KEY=(\w+)", shown)[1]  # type: ignore[index]
        found = ("-t", TOPIC, "-i", unique)
        # Once the group has reported its offsets.
        self.until("trackType=CONSUMED", "queryMsgByUniqueKey", *found)
        note("queryMsgById", "-i", offset_id, "-t", TOPIC)
        note("queryMsgById to a consumer", "queryMsgById", "-i", offset_id, *self._to(client))
        note("queryMsgById of nothing", "queryMsgById", "-i", offset_id[:-4] + "FFFF", "-t", TOPIC)
        note("queryMsgByKey", "-t", TOPIC, "-k", "k-0")
        times = ("-b", "0", "-e", FAR_MS)
        of_key = ("queryMsgByKey", "-t", TOPIC, "-k", "k-0")
        note("queryMsgByKey with all options", *of_key, *times, "-m", "2", "-c", CLUSTER_NAME)
        note("queryMsgByKey of another time", *of_key, "-b", "0", "-e", "1000")
        note("queryMsgByKey of nothing", "queryMsgByKey", "-t", TOPIC, "-k", "k-9")
        note("queryMsgByUniqueKey", *found)
        note("queryMsgByUniqueKey to a consumer", "queryMsgByUniqueKey", *found, *self._to(client))
        note("queryMsgTraceById", "-i", unique)
        note("queryMsgByUniqueKey of all", "queryMsgByUniqueKey", *found, "-a", "-c", CLUSTER_NAME)
        note("queryMsgByOffset as text", "queryMsgByOffset", *first, "-f", "UTF-8")
        note("queryMsgByOffset beyond the end", "queryMsgByOffset", *first[:-1], "99")
        note("queryMsgTraceById of a topic", "queryMsgTraceById", "-i", unique, *times, "-c", "5")
        note("printMsg", "-t", TOPIC, "-d", "true")
        tags = ("-s", "a||b", "-c", "UTF-8", "-d", "true")
        note("printMsg of tags", "printMsg", "-t", TOPIC, *tags)
        day = ("-b", "2020-01-01#00:00:00:000", "-e", "2020-01-02#00:00:00:000")
        note("printMsg of a day", "printMsg", "-t", TOPIC, *day)
        queue = (
            "-t",
            TOPIC,
            "-a",
            BROKER_NAME,
            "-i",
            "0",
            "-p",
            "true",
            "-d",
            "true",
            "-f",
            "true",
        )
        note("printMsgByQueue", *queue)
        note("consumeMessage", *first, "-c", "1")
        note("consumeMessage of a time", "consumeMessage", "-t", TOPIC, "-s", "0", "-e", FAR_MS)
        note("queryMsgById again", "queryMsgById", "-i", offset_id, "-t", TOPIC, "-s", "true")
        note("sendMsgStatus", "-b", BROKER_NAME, "-s", "128", "-c", "3")
        note("checkMsgSendRT", "-t", "List2", "-a", "3", "-s", "64")
        wait_until(lambda: len(consumer.events("message")) >= 4, lambda: consumer.lines)
        self.until("Total: 0\n", "consumerProgress", "-g", GROUP)
        note("consumerStatus", "-g", GROUP)
        note("consumerStatus of one", "consumerStatus", "-g", GROUP, "-i", client, "-s")
        note("consumerStatus of nobody", "consumerStatus", "-g", "Nobody")
        note("producer", "-b", self.cluster.broker)
        on = ("-b", self.cluster.broker)
        note("brokerConsumeStats", *on)
        note("brokerConsumeStats in order", "brokerConsumeStats", *on, "-o", "true")
        self.consumer = consumer

    def offsets(self) -> None:
        note, on = self.note, ("-b", self.cluster.broker)
        note("updateSubGroup", *on, "-g", "Clone")
        note("cloneGroupOffset", "-s", GROUP, "-d", "Clone", "-t", TOPIC)
        offline = ("resetOffsetByTime", "-g", "Clone", "-t", TOPIC)
        note("resetOffsetByTime of a group that is offline", *offline, "-s", "0")
        one = (*on, "-q", "0", "-s", "-1")
        note("resetOffsetByTime of a queue", *offline, *one, "-o", "1")
        note("resetOffsetByTime too far", *offline, *one, "-o", "100")
        note("resetOffsetByTime to now", *offline, "-s", "now")
        day = ("-s", "2020-01-01#00:00:00:000", "-f", "false")
        note("resetOffsetByTime to a day", *offline, *day)
        note("consumerProgress after it", "consumerProgress", "-g", "Clone")
        to = ("-d", "Clone", "-t", TOPIC, "-o", "true")
        note("cloneGroupOffset of nobody", "cloneGroupOffset", "-s", "Nobody", *to)
        note("resetOffsetByTime of nobody", *offline[:2], "Nobody", "-t", TOPIC, "-s", "0")
        note("resetOffsetByTime of no topic", *offline[:3], "-t", "Nothing", "-s", "0")
        # Of a group that is online: its consumer sees everything once more.
        seen = len(self.consumer.events("message"))
        note("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        wait_until(
            lambda: len(self.consumer.events("message")) >= seen + 4, lambda: self.consumer.lines
        )
        note("skipAccumulatedMessage", "-g", "Clone", "-t", TOPIC)
        skip = ("skipAccumulatedMessage", "-g", "Clone", "-t", TOPIC, "-f", "true")
        note("skipAccumulatedMessage by force", *skip)
        note("deleteSubGroup", *on, "-g", "Clone", "-r", "true")

    def name_server(self) -> None:
        note = self.note
        note("updateKvConfig", "-s", "NS", "-k", "key", "-v", "value")
        note("deleteKvConfig", "-s", "NS", "-k", "key")
        note("wipeWritePerm", "-b", BROKER_NAME)
        note("topicRoute while it is wiped", "topicRoute", "-t", TOPIC)
        note("addWritePerm", "-b", BROKER_NAME)
        note("wipeWritePerm of nobody", "wipeWritePerm", "-b", "nobody")
        note("updateOrderConf", "-t", TOPIC, "-v", f"{BROKER_NAME}:1", "-m", "put")
        note("updateOrderConf to read", "updateOrderConf", "-t", TOPIC, "-m", "get")
        note("topicRoute in order", "topicRoute", "-t", TOPIC)
        note("updateOrderConf to delete", "updateOrderConf", "-t", TOPIC, "-m", "delete")
        key = ("-k", "deleteTopicWithBrokerRegistration", "-v", "true")
        note("updateNamesrvConfig", *key)
        note("getNamesrvConfig")

    def looking_after(self) -> None:
        note, on, of_all = self.note, ("-b", self.cluster.broker), ("-c", CLUSTER_NAME)
        for command in ("cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"):
            note(command, *on)
            note(f"{command} of a cluster", command, *of_all)
        for place, where in (("", on), (" of a cluster", of_all)):
            set_it = "updateColdDataFlowCtrGroupConfig"
            note(f"{set_it}{place}", set_it, *where, "-g", GROUP, "-v", "1000")
            note(f"getColdDataFlowCtrInfo{place}", "getColdDataFlowCtrInfo", *where)
            remove = "removeColdDataFlowCtrGroupConfig"
            note(f"{remove}{place}", remove, *where, "-g", GROUP)
            note(f"getColdDataFlowCtrInfo{place} at last", "getColdDataFlowCtrInfo", *where)
            for mode in ("1", "0", "2"):
                command = "setCommitLogReadAheadMode"
                note(f"{command} {mode}{place}", command, *where, "-m", mode)
        note("checkRocksdbCqWriteProgress", *of_all)
        note(
            "checkRocksdbCqWriteProgress of a topic",
            "checkRocksdbCqWriteProgress",
            *of_all,
            "-t",
            TOPIC,
        )
        note("rocksDBConfigToJson", *on, "-t", "topics")
        note("rocksDBConfigToJson of a cluster", "rocksDBConfigToJson", *of_all, "-t", "topics")
        note("statsAll", "-t", TOPIC)
        note("statsAll of the active", "statsAll", "-a", "-t", TOPIC)
        note("haStatus", *on)
        note("resetMasterFlushOffset", *on, "-o", "0")
        note("getBrokerEpoch", "-b", BROKER_NAME)
        pull_mode = ("-t", TOPIC, "-g", GROUP, "-m", "PULL")
        note("setConsumeMode of a cluster", "setConsumeMode", *of_all, *pull_mode)
        note("setConsumeMode", *on, "-t", TOPIC, "-g", GROUP, "-m", "POP", "-q", "1")

    def exports(self) -> None:
        of_all = ("-c", CLUSTER_NAME)
        for title, words in (
            ("exportMetadata", of_all),
            ("exportConfigs", of_all),
            ("exportMetrics", of_all),
            ("exportMetadata of topics", ("-b", self.cluster.broker, "-t")),
            ("exportMetadata of groups", ("-b", self.cluster.broker, "-g")),
        ):
            folder = self._folder / title.replace(" ", "-")
            folder.mkdir()
            self.note(title, title.split()[0], *words, "-f", str(folder))
            (file,) = (path for path in folder.rglob("*") if path.is_file())
            self.files[title] = json.loads(file.read_text())
        self.note("exportPopRecord", "-b", self.cluster.broker, "-d", "true")

    def access_control(self) -> None:
        on, both = (
            ("-b", self.cluster.broker),
            ("-f", self.cluster.broker, "-t", self.cluster.broker),
        )
        user, acl = ("-u", "one"), ("-s", "User:one")
        policy = (*acl, "-r", "Topic:*", "-a", "Pub", "-d", "Allow")
        self.note("createUser", *on, *user, "-p", "secret", "-t", "Normal")
        self.note("updateUser", *on, *user, "-p", "another")
        self.note("getUser", *on, *user)
        self.note("listUser", *on)
        self.note("copyUser", *both, *user)
        self.note("deleteUser", *on, *user)
        self.note("createAcl", *on, *policy)
        self.note("updateAcl", *on, *policy)
        self.note("getAcl", *on, *acl)
        self.note("listAcl", *on)
        self.note("copyAcl", *both, *acl)
        self.note("deleteAcl", *on, *acl)

    def settings(self) -> None:
        note, on = self.note, ("-b", self.cluster.broker)
        note("updateBrokerConfig", *on, "-k", "autoCreateTopicEnable", "-v", "false")
        note("sendMessage to a new topic", "sendMessage", "-t", "NotThere", "-p", "x")
        all_of = ("updateBrokerConfig", "-c", CLUSTER_NAME)
        note("updateBrokerConfig of a cluster", *all_of, "-k", "transactionCheckMax", "-v", "9")
        note("updateBrokerConfig without effect", *all_of, "-k", KEPT, "-v", "false")
        note("updateBrokerConfig of nobody's", *all_of, "-k", "nobodyKnowsThis", "-v", "1")
        note("updateBrokerConfig of a path", *all_of, "-k", "brokerConfigPath", "-v", "/etc/passwd")
        note("getBrokerConfig", *on)

    def _to(self, client: str) -> tuple[str, ...]:
        return ("-t", TOPIC, "-g", GROUP, "-d", client)

    def _write(self, name: str, content: object) -> str:
        path = self._folder / name
        path.write_text(json.dumps(content))
        return str(path)


@pytest.fixture(scope="module")
def walks(java: Java, tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, Walk]:
    """The story with ours and with the real one."""
    folders = [tmp_path_factory.mktemp(name) for name in ("more-ours", "more-real")]
    ours = AerobeeCluster(folders[0] / "cluster", SMALL_FILES)
    real = JavaCluster(folders[1] / "cluster", flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real), ThreadPoolExecutor(2) as pool:
        told = Walk(ours, java, folders[0]), Walk(real, java, folders[1])
        list(pool.map(Walk.tell, told))
    return told


# What differs from run to run, over and above what test_mqadmin knows.
MORE_WORDS = (
    (r"spentTimeMills=\d+", "spentTimeMills=N"),
    (r"\b1[78]\d{11}\b", "MS"),
    (r"rt=\d+ms", "rt=N"),
    (r"originalMsgId=\w{32}", "originalMsgId=ID"),
    (r"cost \[\d+\]ms", "cost N"),
    (r"CODE: 17 +DESC: .*", "CODE: 17"),
)
# 5.3.3 takes the name of the topic for one of the groups that consume it.
SLIP = re.compile(rf"MessageTrack \[consumerGroup={TOPIC}, .*?\.java:\d+\)\]", re.DOTALL)


def plain(output: str) -> list[str]:
    """The lines of an output with all that differs from run to run replaced."""
    lines = in_words(SLIP.sub("", output))
    for pattern, word in MORE_WORDS:
        lines = [re.sub(pattern, word, line) for line in lines]
    return lines


COLD = [
    f"{command}{place}{more}"
    for place in ("", " of a cluster")
    for command, more in (
        ("updateColdDataFlowCtrGroupConfig", ""),
        ("getColdDataFlowCtrInfo", ""),
        ("removeColdDataFlowCtrGroupConfig", ""),
        ("getColdDataFlowCtrInfo", " at last"),
        ("setCommitLogReadAheadMode 1", ""),
        ("setCommitLogReadAheadMode 0", ""),
        ("setCommitLogReadAheadMode 2", ""),
    )
]
ALIKE = [
    "updateTopic",
    "updateTopicList",
    "updateSubGroupList",
    "topicClusterList",
    "updateTopic with all options",
    "updateTopicPerm of a cluster",
    "topicRoute with all options",
    "updateSubGroup with all options",
    "getConsumerConfig with all options",
    "updateTopicPerm",
    "updateTopicPerm to what it is",
    "updateTopicPerm back",
    "getConsumerConfig",
    "getConsumerConfig of nobody",
    "allocateMQ",
    "queryMsgById",
    "queryMsgById to a consumer",
    "queryMsgById of nothing",
    "queryMsgByKey",
    "queryMsgByKey of nothing",
    "queryMsgByKey with all options",
    "queryMsgByKey of another time",
    "queryMsgByUniqueKey",
    "queryMsgByUniqueKey to a consumer",
    "queryMsgTraceById",
    "queryMsgByUniqueKey of all",
    "queryMsgByOffset as text",
    "queryMsgByOffset beyond the end",
    "queryMsgTraceById of a topic",
    "printMsg",
    "printMsg of tags",
    "printMsg of a day",
    "printMsgByQueue",
    "consumeMessage",
    "consumeMessage of a time",
    "queryMsgById again",
    "sendMsgStatus",
    "consumerStatus",
    "consumerStatus of nobody",
    "brokerConsumeStats",
    "brokerConsumeStats in order",
    "updateSubGroup",
    "cloneGroupOffset",
    "resetOffsetByTime of a group that is offline",
    "resetOffsetByTime of a queue",
    "resetOffsetByTime too far",
    "resetOffsetByTime to now",
    "resetOffsetByTime to a day",
    "consumerProgress after it",
    "cloneGroupOffset of nobody",
    "resetOffsetByTime of nobody",
    "resetOffsetByTime of no topic",
    "resetOffsetByTime",
    "skipAccumulatedMessage",
    "skipAccumulatedMessage by force",
    "deleteSubGroup",
    "updateKvConfig",
    "deleteKvConfig",
    "wipeWritePerm",
    "topicRoute while it is wiped",
    "addWritePerm",
    "wipeWritePerm of nobody",
    "updateOrderConf",
    "updateOrderConf to read",
    "topicRoute in order",
    "updateOrderConf to delete",
    "updateNamesrvConfig",
    "cleanExpiredCQ",
    "cleanExpiredCQ of a cluster",
    "deleteExpiredCommitLog",
    "deleteExpiredCommitLog of a cluster",
    "cleanUnusedTopic",
    "cleanUnusedTopic of a cluster",
    *COLD,
    "checkRocksdbCqWriteProgress",
    "checkRocksdbCqWriteProgress of a topic",
    "rocksDBConfigToJson",
    "rocksDBConfigToJson of a cluster",
    "resetMasterFlushOffset",
    "setConsumeMode",
    "setConsumeMode of a cluster",
    "exportMetadata",
    "exportConfigs",
    "exportMetrics",
    "exportMetadata of topics",
    "exportMetadata of groups",
    "exportPopRecord",
    "updateBrokerConfig",
    "sendMessage to a new topic",
    "updateBrokerConfig of a cluster",
    "updateBrokerConfig without effect",
    "updateBrokerConfig of nobody's",
]


@pytest.mark.parametrize("title", ALIKE)
def test_mqadmin_prints_the_same_about_ours_as_about_the_real_broker(
    title: str, walks: tuple[Walk, Walk]
) -> None:
    ours, real = walks
    assert plain(ours.outputs[title]) == plain(real.outputs[title])


@pytest.mark.parametrize(
    "title", ["checkMsgSendRT", "haStatus", "statsAll", "statsAll of the active"]
)
def test_mqadmin_prints_the_same_but_for_its_numbers(title: str, walks: tuple[Walk, Walk]) -> None:
    ours, real = (walk.outputs[title].splitlines() for walk in walks)
    assert len(ours) > 1
    # The same slip: a row for the topic's own name.
    slip = re.compile(rf"{TOPIC} +{TOPIC} ")
    wanted = [line for line in real if not slip.match(line)]
    assert numbers_out(plain("\n".join(ours))) == numbers_out(plain("\n".join(wanted)))


CODES = {
    **dict.fromkeys(("createUser", "updateUser", "getUser", "listUser", "copyUser"), "1"),
    **dict.fromkeys(("deleteUser", "createAcl", "updateAcl", "getAcl", "listAcl"), "1"),
    **dict.fromkeys(("copyAcl", "deleteAcl", "getBrokerEpoch"), "1"),
    "updateBrokerConfig of a path": "16",
}


@pytest.mark.parametrize("title", CODES)
def test_what_the_real_broker_refuses_is_refused_with_its_code(
    title: str, walks: tuple[Walk, Walk]
) -> None:
    for walk in walks:
        assert re.findall(r"CODE: (\d+)", walk.outputs[title])[:1] == [CODES[title]]


def keys_of(value: Any) -> Any:
    """A document with each plain value replaced by its kind, and each list by its kinds."""
    if isinstance(value, dict):
        return {key: keys_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(keys_of(inner)) for inner in value})
    return "number" if isinstance(value, int | float) else value


@pytest.mark.parametrize("title", ["exportMetadata", "exportMetadata of groups"])
def test_exported_topics_and_groups_are_the_same(title: str, walks: tuple[Walk, Walk]) -> None:
    ours, real = (walk.files[title] for walk in walks)
    for table in ("topicConfigTable", "subscriptionGroupTable"):
        assert ours.get(table) == real.get(table)
    assert ours.keys() == real.keys()


def test_the_exported_topics_of_a_broker_are_the_same(walks: tuple[Walk, Walk]) -> None:
    ours, real = (walk.files["exportMetadata of topics"] for walk in walks)
    assert ours["topicConfigTable"] == real["topicConfigTable"]


@pytest.mark.parametrize("title", ["exportConfigs", "exportMetrics"])
def test_exported_settings_and_numbers_have_the_same_shape(
    title: str, walks: tuple[Walk, Walk]
) -> None:
    ours, real = (json.dumps(keys_of(walk.files[title]), sort_keys=True) for walk in walks)
    assert numbers_out([ours]) == numbers_out([real])


def test_a_consumers_status_has_every_part_of_the_real_ones(walks: tuple[Walk, Walk]) -> None:
    ours, real = (walk.outputs["consumerStatus of one"] for walk in walks)
    for walk in (ours, real):
        assert "AllocateMessageQueueAveragely" in walk
        assert "ConsumeMessageThread_" in walk  # its stacks
    parts = [[line for line in each.splitlines() if line.startswith("#")] for each in (ours, real)]
    assert parts[0] == parts[1]


def test_a_producers_line_says_who_it_is(walks: tuple[Walk, Walk]) -> None:
    ours, real = ({line[:60] for line in plain(w.outputs["producer"])} for w in walks)
    assert {line for line in ours if "CLIENT_INNER_PRODUCER" in line} == {
        line for line in real if "CLIENT_INNER_PRODUCER" in line
    }


def test_a_changed_setting_is_shown_by_both(walks: tuple[Walk, Walk]) -> None:
    for walk in walks:
        shown: dict[str, str] = {}
        for line in walk.outputs["getBrokerConfig"].splitlines():
            if "  =  " in line:
                name, _, value = line.partition("=")
                shown[name.strip()] = value.strip()
        assert shown["autoCreateTopicEnable"] == "false"
        assert shown["transactionCheckMax"] == "9"
        assert shown[KEPT] == "false"


def test_a_name_server_shows_the_real_ones_settings_and_what_was_changed(
    walks: tuple[Walk, Walk],
) -> None:
    shown = []
    for walk in walks:
        lines = [" ".join(line.split()) for line in walk.outputs["getNamesrvConfig"].splitlines()]
        assert "deleteTopicWithBrokerRegistration = true" in lines
        shown.append({line.partition(" = ")[0] for line in lines if " = " in line})
    ours, real = shown
    # The real one shows what its file holds, also a key that is only ours.
    assert ours - real == set()
    assert real - ours <= {"httpPort", "kvConfigPath", "configStorePath", "rocketmqHome"}


def test_every_command_of_mqadmin_is_walked_through_or_excepted_with_a_reason(
    walks: tuple[Walk, Walk], java: Java
) -> None:
    program = java.start("Admin")
    known = set(program.ask("?", "commands", SECONDS)["names"])
    assert len(known) > 80
    source = Path(__file__).with_name("test_mqadmin.py").read_text()
    elsewhere = {name for name in known if f'"{name}"' in source}
    walked = walks[0].commands | elsewhere
    assert known - walked - NOT_WALKED.keys() == set()
    assert walks[0].commands & NOT_WALKED.keys() == set()
