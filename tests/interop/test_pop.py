"""Pop as the real client does it, on our broker and on the real one: the same requests, the same
answers.

Both clusters are walked through the same story at the same time. What differs from run to run
(times, revive queues, ids) is replaced by words; what is left must be the same.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import (
    BROKER_NAME,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from ..waiting import SLOWNESS, wait_until
from .programs import SECONDS, Java, Mqadmin

Found = dict[str, Any]
Story = dict[str, Any]

INVISIBLE_MS = round(10_000 * SLOWNESS)  # some steps are done before they are over
ALL_QUEUES = "-1"


class Popper:
    """One group that pops by the program Pop."""

    def __init__(self, program: Reporter, group: str, topic: str) -> None:
        self._program = program
        self._who = (group, topic)

    def of_topic(self, topic: str) -> Popper:
        """The same group in another topic."""
        return Popper(self._program, self._who[0], topic)

    def ask(self, verb: str, *words: object) -> Found:
        """One request and what the client made of its answer."""
        line = "\t".join(map(str, (verb, *self._who, *words)))
        found: Found = self._program.ask(line, "answer", SECONDS)["found"]
        return found

    def pop(
        self,
        messages: int = 32,
        *,
        poll_ms: int = 2_000,  # a request older than that and half a second is not served
        order: bool = False,
        attempt: str = "-",
        tags: str = "*",
        invisible_ms: int = INVISIBLE_MS,
    ) -> Found:
        words = (ALL_QUEUES, messages, invisible_ms, poll_ms, str(order).lower(), attempt, tags)
        return self.ask("pop", *words)

    def pop_until(self, wanted: str, **how: Any) -> Found:
        """Pops until the message with this body is there, and nothing else was."""
        found: list[Found] = []

        def came() -> bool:
            found[:] = [self.pop(**how)]
            return bool(found[0]["messages"])

        wait_until(came, lambda: f"nothing instead of {wanted}")
        assert bodies(found[0]) == [wanted]
        return found[0]


def bodies(found: Found) -> list[str]:
    return [message["body"] for message in found["messages"]]


def handles(found: Found) -> list[str]:
    return [message["handle"] for message in found["messages"]]


def in_words(value: Any) -> Any:
    """The same with all replaced that differs from run to run."""
    if isinstance(value, dict):
        return {key: in_words(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [in_words(inner) for inner in value]
    if not isinstance(value, str):
        return value
    # A handle: its pop time and, unless it is one in order, its revive queue.
    value = re.sub(r"^(\d+) \d{13} (\d+) \d (\d \S+ \d+ \d+)$", r"\1 TIME \2 REVIVE \3", value)
    value = re.sub(r"\b\d{13}\b", "TIME", value)
    return re.sub(r"\b[0-9A-F]{32,}\b", "ID", value)


def code_of(found: Found) -> Found:
    """A failure by its kind and code: the words are each broker's own."""
    return {"failed": found["failed"], "code": re.findall(r"CODE: \d+", found["why"])}


def pop_by_hand(cluster: Cluster, java: Java, admin: Mqadmin) -> Story:
    """Everything that one can do with popped messages."""
    story: Story = {}
    admin.create_topic(cluster, "ByHand", 1)
    java.produce(namesrv=cluster.namesrv, topic="ByHand", count=7, tags="a,b")
    admin.wait_for_queued(cluster, "ByHand", 7)
    p = popper_of(java, cluster, "HandGroup", "ByHand")

    first = story["pop of four"] = p.pop(4)
    a, b, c, d = handles(first)
    story["acknowledge"] = p.ask("ack", a)
    story["acknowledge a batch"] = p.ask("batch", b)
    story["change"] = p.ask("change", c, 5 * INVISIBLE_MS // 2)
    story["pop by tag"] = by_tag = p.pop(2, tags="a")
    story["acknowledge several at once"] = p.ask("batch", *handles(by_tag))
    story["pop of nothing"] = p.pop()
    story["notification of nothing"] = p.ask("notify", ALL_QUEUES, 0, "false")
    story["nobody waits"] = p.ask("polling", ALL_QUEUES)
    story["acknowledge twice"] = p.ask("ack", a)
    story["acknowledge what is not there"] = p.ask("ack", re.sub(r"\d+$", "77", d))
    story["acknowledge in no queue"] = p.ask("ack", re.sub(r"\d+ (\d+)$", r"9 \1", d))
    story["acknowledge with no handle"] = p.ask("ack", d.replace(f" {INVISIBLE_MS} ", " soon "))
    story["pop of an unknown topic"] = code_of(p.of_topic("Unknown").pop())
    story["pop of too many"] = code_of(p.pop(33))

    again = story["what was not acknowledged comes again"] = p.pop_until("m-3")
    assert first["messages"][3]["handle"] == d
    pop_ms = d.split(" ")[1]
    story["its first time is kept"] = again["messages"][0]["properties"]["1ST_POP_TIME"] == pop_ms
    story["acknowledge it"] = p.ask("ack", handles(again)[0])
    changed = story["what was changed comes later"] = p.pop_until("m-2")
    story["change it once more"] = p.ask("change", handles(changed)[0], 3 * INVISIBLE_MS)
    story["then it is gone"] = p.pop()
    return story


def pop_in_order(cluster: Cluster, java: Java, admin: Mqadmin) -> Story:
    """Batches of one queue, one after the other."""
    story: Story = {}
    admin.create_topic(cluster, "PopInOrder", 1)
    java.produce(namesrv=cluster.namesrv, topic="PopInOrder", count=5)
    admin.wait_for_queued(cluster, "PopInOrder", 5)
    p = popper_of(java, cluster, "OrderGroup", "PopInOrder")

    first = story["a batch"] = p.pop(3, order=True, attempt="one")
    story["the same attempt"] = p.pop(3, order=True, attempt="one")
    story["another attempt"] = p.pop(3, order=True, attempt="two")
    story["no news"] = p.ask("notify", ALL_QUEUES, 0, "true")
    again = p.pop(3, order=True, attempt="one")
    story["acknowledge an old handle changes nothing"] = bodies(again) == bodies(first)
    one, two, three = handles(again)
    story["acknowledge the second"] = p.ask("ack", two)
    story["still none"] = p.pop(3, order=True, attempt="two")
    begin_ms = time.time() * 1_000 - 1
    changed = p.ask("change", three, 3_000)
    end_ms = time.time() * 1_000
    visible_ms = sum(map(int, changed["handle"].split(" ")[1:3]))
    story["change the third"] = changed["status"]
    story["it is visible three seconds from then"] = begin_ms <= visible_ms - 3_000 <= end_ms
    story["acknowledge the first"] = p.ask("ack", one)
    rest: list[Found] = []

    def freed() -> bool:
        rest[:] = [p.pop(3, order=True, attempt="three", poll_ms=2_000)]
        return bool(rest[0]["messages"])

    wait_until(freed, lambda: rest)
    story["the third comes again, counted, with what is behind it"] = rest[0]
    for text in handles(rest[0]):
        p.ask("ack", text)
    story["nothing is left"] = p.pop(3, order=True, attempt="four")
    return story


def pop_by_push_consumer(cluster: Cluster, java: Java, admin: Mqadmin) -> Story:
    """DefaultMQPushConsumer, told to pop by the broker."""
    story: Story = {}
    name, address = ("-n", cluster.namesrv), ("-b", cluster.broker)
    group, topic = "PushPopGroup", "PushPop"
    admin.create_topic(cluster, topic, 4)
    mode = ("setConsumeMode", *name, *address, "-t", topic, "-g", group, "-m")
    story["setConsumeMode"] = admin(*mode, "POP", "-q", "0").replace(cluster.broker, "ADDRESS")
    of_retry = ("setConsumeMode", *name, *address, "-t", f"%RETRY%{group}", "-g", group, "-m")
    refused = admin(*of_retry, "POP")
    story["setConsumeMode of a retry topic"] = re.findall(r"CODE: \d+\s+DESC: [^\n]*", refused)[:1]
    joined = {"namesrv": cluster.namesrv, "topic": topic, "group": group, "pop": True}
    members = [java.start("Consume", **joined), java.start("Consume", **joined, fail=2)]
    for member in members:
        member.wait_event("started", SECONDS)
        wait_until(
            lambda member=member: (  # type: ignore[misc]
                member.ask("popping", "popping")["queues"] == [f"{topic}:{ALL_QUEUES}"]
            ),
            lambda member=member: member.ask("popping", "popping"),  # type: ignore[misc]
        )
    sent = java.produce(namesrv=cluster.namesrv, topic=topic, count=200)
    keys = {message["key"] for message in sent}

    def seen() -> list[Found]:
        return [message for member in members for message in member.events("message")]

    # Two deliveries fail: those messages come again when their time is up, to either member.
    wait_until(
        lambda: len([m for m in seen() if m["times"] == 1]) >= 2,
        lambda: [(len(m.events("message")), m.tail()) for m in members],
    )
    wait_until(lambda: {m["key"] for m in seen()} >= keys, lambda: len(seen()))
    story["each is delivered"] = {m["key"] for m in seen()} == keys
    story["topics that consumers see"] = sorted({message["topic"] for message in seen()})
    story["both take part"] = all(member.events("message") for member in members)
    progress = ("consumerProgress", *name, "-g", group)
    admin.until(lambda text: "Total: 0\n" in text, *progress)
    story["setConsumeMode back"] = admin(*mode, "PULL").replace(cluster.broker, "ADDRESS")
    for member in members:
        member.say("stop")
        member.wait_event("stopped", SECONDS)
    return story


PARTS = (pop_by_hand, pop_in_order, pop_by_push_consumer)


@pytest.fixture(scope="module")
def stories(both: tuple[AerobeeCluster, JavaCluster], java: Java) -> tuple[Story, Story]:
    """What happened on ours and on the real one."""

    def walk(cluster: Cluster) -> Story:
        admin = Mqadmin(java.start("Admin"))
        name = ("-n", cluster.namesrv)
        admin.until(lambda text: cluster.broker in text, "clusterList", *name)
        story: Story = {}
        for part in PARTS:
            story |= {f"{part.__name__}: {key}": v for key, v in part(cluster, java, admin).items()}
        return story

    with ThreadPoolExecutor(2) as pool:
        ours, real = pool.map(walk, both)
    return ours, real


def test_every_step_comes_out_as_with_the_real_broker(stories: tuple[Story, Story]) -> None:
    ours, real = stories
    assert len(real) > 30
    wrong = [
        f"{key}:\n  ours {in_words(ours[key])}\n  real {in_words(real[key])}"
        for key in real
        if in_words(ours[key]) != in_words(real[key])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_story_is_not_an_empty_one(stories: tuple[Story, Story]) -> None:
    ours, _ = stories
    assert bodies(ours["pop_by_hand: pop of four"]) == ["m-0", "m-1", "m-2", "m-3"]
    assert ours["pop_by_hand: its first time is kept"] is True
    again = ours["pop_by_hand: what was not acknowledged comes again"]["messages"][0]
    assert (again["topic"], again["times"]) == ("ByHand", 1)
    counted = ours["pop_in_order: the third comes again, counted, with what is behind it"]
    assert [message["times"] for message in counted["messages"]] == [1, 0, 0]
    assert ours["pop_by_push_consumer: each is delivered"]


def test_no_message_is_lost_when_the_broker_is_killed_under_popping_consumers(
    server: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic, group = "KilledPop", "KilledPopGroup"
    mqadmin.create_topic(server, topic, 4)
    mode = ("setConsumeMode", "-n", server.namesrv, "-b", server.broker)
    assert "success" in mqadmin(*mode, "-t", topic, "-g", group, "-m", "POP")
    joined = {"namesrv": server.namesrv, "topic": topic, "group": group, "pop": True}
    # Some deliveries fail, so that check points and changed times are under way, too.
    member = java.consume(**joined, fail=20, invisible=5_000)
    producer = java.start(
        "Produce", namesrv=server.namesrv, topic=topic, insist=True, count=1500, rate=150
    )
    for enough, kill in ((200, True), (700, False)):
        wait_until(lambda enough=enough: len(producer.events("sent")) > enough, producer.tail)  # type: ignore[misc]
        server.stop_broker(kill=kill)
        server.start_broker()
    assert producer.wait_event("done", SECONDS)["failed"] == 0
    sent = {message["key"] for message in producer.events("sent")}
    assert len(sent) == 1500
    wait_until(
        lambda: {message["key"] for message in member.events("message")} >= sent,
        lambda: sorted(sent - {message["key"] for message in member.events("message")}),
    )

    def again() -> set[str]:
        return {message["key"] for message in member.events("message") if message["times"]}

    # What failed before the first kill was to come again ten seconds later.
    wait_until(lambda: len(again()) >= 20, again)


def popper_of(java: Java, cluster: Cluster, group: str, topic: str) -> Popper:
    program = java.start("Pop", namesrv=cluster.namesrv, broker=cluster.broker, name=BROKER_NAME)
    program.wait_event("started", SECONDS)
    return Popper(program, group, topic)


def collected(p: Popper, wanted: set[str], **how: Any) -> dict[str, Found]:
    """Pops until these bodies were there, and no others; the messages by their bodies."""
    found: dict[str, Found] = {}

    def came() -> bool:
        found.update({message["body"]: message for message in p.pop(**how)["messages"]})
        return found.keys() >= wanted

    wait_until(came, lambda: found)
    assert found.keys() == wanted
    return found


def test_what_one_broker_left_invisible_comes_again_on_the_other(
    java_is_here: None, java: Java, mqadmin: Mqadmin, tmp_path: Path
) -> None:
    settings: dict[str, str | int] = {
        "storePathRootDir": str(tmp_path / "store"),
        "flushConsumerOffsetInterval": 100,  # a kill takes next to nothing of the offsets
        "mappedFileSizeCommitLog": 1 << 20,
        "maxHashSlotNum": 1_000,
        "maxIndexNum": 4_000,
    }
    ours = AerobeeCluster(tmp_path / "ours", settings)
    often = settings | {"timerFlushIntervalMs": 100}  # nor of the timers
    real = JavaCluster(tmp_path / "java", often, flags=TEST_BROKER_FLAGS)
    try:
        ours.start()
        mqadmin.create_topic(ours, "Taken", 1)
        java.produce(namesrv=ours.namesrv, topic="Taken", count=5)
        p = popper_of(java, ours, "TakenGroup", "Taken")
        first = p.pop(4)
        texts = dict(zip(bodies(first), handles(first), strict=True))
        for body in ("m-0", "m-3"):
            assert p.ask("ack", texts[body])["status"] == "OK"
        assert p.ask("change", texts["m-1"], 15_000)["status"] == "OK"
        ours.stop_broker(kill=False)
        ours.stop()

        real.start()
        p = popper_of(java, real, "TakenGroup", "Taken")
        # m-4 was not popped yet, m-1 and m-2 come again.
        found = collected(p, {"m-1", "m-2", "m-4"}, invisible_ms=90_000)
        assert {body: each["times"] for body, each in found.items()} == {
            "m-1": 1,
            "m-2": 1,
            "m-4": 0,
        }
        assert p.ask("change", found["m-1"]["handle"], 5_000)["status"] == "OK"
        assert p.ask("ack", found["m-4"]["handle"])["status"] == "OK"
        stored = tmp_path / "store" / "config" / "consumerOffset.json"
        retries = re.compile(r'%RETRY%TakenGroup_Taken@TakenGroup":\s*\{\s*0:\s*2\b')
        wait_until(lambda: bool(retries.search(stored.read_text())), stored.read_text)
        real.stop_broker(kill=True)
        real.stop()

        ours.start()
        p = popper_of(java, ours, "TakenGroup", "Taken")
        assert p.ask("ack", found["m-2"]["handle"])["status"] == "OK"
        again = collected(p, {"m-1"})
        assert again["m-1"]["times"] == 2
        assert p.ask("ack", again["m-1"]["handle"])["status"] == "OK"
    finally:
        ours.stop()
        real.stop()
