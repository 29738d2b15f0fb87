"""Older Java clients see the same results with our servers as with the real ones.

5.3.3 servers serve clients from 4.x on, which speak the same protocol with fewer fields. Each
version's story is told to both clusters at the same time; then the results are compared.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import Cluster

from .programs import SECONDS, Java, Mqadmin, wait_until
from .support import in_words, numbers_out

Outcome = dict[str, Any]

MODES = ("sync", "async", "oneway", "batch", "select")
EACH = 16  # messages of each mode


def story(cluster: Cluster, java: Java, mqadmin: Mqadmin, version: str) -> Outcome:
    """Runs producers and consumers of each kind, then asks mqadmin about them."""
    name = ("-n", cluster.namesrv)
    topic, paid = f"Old-{version}", f"OldPaid-{version}"
    created = [
        mqadmin("updateTopic", *name, "-b", cluster.broker, "-t", each, "-r", "4", "-w", "4")
        for each in (topic, paid)
    ]
    for each in (topic, paid):
        mqadmin.until(lambda text: "readQueueNums" in text, "topicRoute", *name, "-t", each)
    where = {"namesrv": cluster.namesrv, "topic": topic}
    readers = f"Readers-{version}"
    plain = java.start("Consume", **where, group=readers, tags="a||b", fail=1)
    orderly = java.start("Consume", **where, group=f"Clerks-{version}", orderly=True, fail=1)
    everybody = {**where, "group": f"Everybody-{version}", "model": "broadcasting"}
    all_of_them = [java.start("Consume", **everybody) for _ in range(2)]
    buyers = java.start("Consume", namesrv=cluster.namesrv, topic=paid, group=f"Books-{version}")
    for consumer in (plain, orderly, *all_of_them, buyers):
        consumer.wait_event("started", SECONDS)

    many = java.start(
        "Produce",
        **where,
        mode=",".join(MODES),
        count=EACH,
        tags="a,b,c",
        size=100,
        hold=True,
        timeout=30_000,
    )
    late = java.start("Produce", **where, prefix="late", tags="a", delay=2, timeout=30_000)
    plan = "commit,rollback,unknown-commit,unknown-rollback"
    payer = java.start(
        "Transact",
        namesrv=cluster.namesrv,
        topic=paid,
        group=f"Payers-{version}",
        count=4,
        plan=plan,
    )
    assert many.wait_event("done", SECONDS)["failed"] == 0, many.events("failed")
    assert late.wait_event("done", SECONDS)["failed"] == 0, late.events("failed")
    payer.wait_event("done", SECONDS)
    every = {f"m-{mode}-{at}" for mode in MODES for at in range(EACH)} | {"late-0"}
    wanted = {key for key in every if int(key.rpartition("-")[2]) % 3 != 2}
    pulled = java.start("PullConsume", **where, group=f"Lite-{version}", count=len(every))
    # Failed messages are redelivered after ten seconds.
    wait_until(lambda: keys(plain) >= wanted and again(plain), lambda: sorted(wanted ^ keys(plain)))
    for consumer in (orderly, *all_of_them):
        wait_until(lambda: keys(consumer) >= every, lambda: sorted(every - keys(consumer)))  # noqa: B023
    wait_until(lambda: keys(buyers) >= {"t-0", "t-2"}, lambda: (cluster.kind, buyers.lines))
    wait_until(lambda: checked(payer).keys() >= {"t-2", "t-3"}, lambda: payer.lines)
    lite = pulled.wait_event("done", SECONDS)

    progress = ("consumerProgress", *name, "-g", readers)
    told = mqadmin.until(
        lambda text: text.count("interop-broker") == 5 and "Total: 0\n" in text, *progress
    )
    consumers = (plain, orderly, *all_of_them, buyers)
    for program in (*consumers, many, payer):
        program.say("stop")
    for consumer in consumers:
        consumer.wait_event("stopped", SECONDS)
    # A consumer that leaves commits its offsets: the consumer progress is checked without it.
    return {
        "statuses": sorted({event["status"] for event in many.events("sent") if "status" in event}),
        "queues": sorted({event["queue"] for event in many.events("sent") if "queue" in event}),
        "late": [(event["key"], event["status"]) for event in late.events("sent")],
        "plain": once(plain),
        "again": again(plain),
        "orderly": once(orderly),
        "backwards": backwards(orderly),
        "everybody": [once(consumer) for consumer in all_of_them],
        "lite": (lite["count"], once(pulled)),
        "bought": once(buyers),
        "transactions": [(e["key"], e["status"], e["state"]) for e in payer.events("sent")],
        "checked": {key: checked(payer)[key] for key in ("t-2", "t-3")},
        "created": [in_words(each) for each in created],
        "progress": numbers_out(in_words(told)),
        "found by its key": numbers_out(
            in_words(mqadmin("queryMsgByKey", *name, "-t", topic, "-k", "late-0"))
        ),
    }


def keys(consumer: Reporter) -> set[str]:
    return {event["key"] for event in consumer.events("message")}


def again(consumer: Reporter) -> bool:
    return any(event["times"] > 0 for event in consumer.events("message"))


def once(consumer: Reporter) -> list[tuple[str, str, str]]:
    """The received messages, each once: a member that takes over a queue may get some again."""
    got = {(e["key"], e.get("tag", ""), e["body"]) for e in consumer.events("message")}
    return sorted(got)


def backwards(consumer: Reporter) -> int:
    """How often a queue's offsets decrease. The redelivered first message does not count."""
    newest: dict[int, int] = {}
    steps = 0
    for event in consumer.events("message"):
        steps += event["offset"] < newest.get(event["queue"], 0)
        newest[event["queue"]] = event["offset"]
    return steps


def checked(payer: Reporter) -> dict[str, tuple[str, str, str]]:
    return {e["key"]: (e["answer"], e["topic"], e["body"]) for e in payer.events("checked")}


@pytest.mark.parametrize("version", ["4.9.8", "5.1.4"])
def test_an_older_client_sends_and_consumes_in_every_mode_as_with_the_real_broker(
    both: tuple[Cluster, Cluster], tmp_path: Path, version: str
) -> None:
    programs = Java(tmp_path, version)

    def tell(cluster: Cluster) -> Outcome:
        admin = Mqadmin(programs.start("Admin"))
        return story(cluster, programs, admin, version.replace(".", "_"))

    try:
        with ThreadPoolExecutor(2) as pool:
            ours, real = pool.map(tell, both)
    finally:
        programs.stop()
    assert ours == real
    assert ours["statuses"] == ["SEND_OK"]
    assert ours["queues"] == [0, 1, 2, 3]
    assert len(ours["orderly"]) == len(MODES) * EACH + 1
    assert ours["backwards"] == 0
    assert ours["again"]
    assert [key for key, _, _ in ours["bought"]] == ["t-0", "t-2"]
