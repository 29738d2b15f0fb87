"""The Go client (rocketmq-client-go 2.1) finds with our servers what it finds with the real ones.

Each story is told to both at the same time, and what came of it is compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import CLUSTER_NAME, Cluster

from .go_programs import Go, GoMissing, build
from .programs import SECONDS, wait_until

Outcome = dict[str, Any]
Story = Callable[[Cluster, Go], Outcome]


@pytest.fixture(scope="module")
def go(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Go]:
    """The programs; skips without Go, with the reason; in CI that is a failure."""
    try:
        program = build()
    except GoMissing as lack:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the Go client: {lack}")
        pytest.skip(str(lack))
    programs = Go(program, tmp_path_factory.mktemp("go"))
    yield programs
    programs.stop()


@pytest.fixture
def told(both: tuple[Cluster, Cluster], go: Go) -> Callable[[Story], tuple[Outcome, Outcome]]:
    """Tells a story to both at once; what came of it with ours, and with the real ones."""

    def tell(story: Story) -> tuple[Outcome, Outcome]:
        with ThreadPoolExecutor(2) as pool:
            ours, real = (pool.submit(story, cluster, go) for cluster in both)
            return ours.result(), real.result()

    return tell


def create(cluster: Cluster, go: Go, topic: str) -> dict[str, Any]:
    """Has the Go client create a topic of four queues, and another that it removes again."""
    tool = go.start(
        "administrate",
        namesrv=cluster.namesrv,
        broker=cluster.broker,
        topic=topic,
        remove=f"{topic}Gone",
        queues=4,
    )
    done = tool.wait_event("administrated", SECONDS)
    assert (done["queues"], done["created"], done["deleted"]) == ([0, 1, 2, 3], True, True)
    return done


def keys(*members: Reporter) -> set[str]:
    return {event["key"] for member in members for event in member.events("message")}


def wait_for(wanted: set[str], *members: Reporter) -> None:
    wait_until(lambda: keys(*members) >= wanted, lambda: sorted(wanted ^ keys(*members)))


def once(*members: Reporter) -> list[tuple[str, str, str, str]]:
    """What came, each message once: a member that takes a queue over may get some again."""
    got = (event for member in members for event in member.events("message"))
    return sorted({(e["key"], e["tag"], e["topic"], e["number"]) for e in got})


# --- sends and tags -------------------------------------------------------------------------------

MODES = ("sync", "async", "oneway", "batch")
EACH = 12


def story_of_sends(cluster: Cluster, go: Go) -> Outcome:
    done = create(cluster, go, "GoSends")
    where = {"namesrv": cluster.namesrv, "topic": "GoSends"}
    some = go.start("consume", **where, group="GoSome", tags="a || b")
    members = [go.start("consume", **where, group="GoAll") for _ in range(2)]
    for member in (some, *members):
        member.wait_event("started", SECONDS)
    producer = go.start(
        "produce", **where, mode=",".join(MODES), count=EACH, tags="a,b,c", size=5_000
    )
    producer.wait_event("done", SECONDS)
    every = {f"g-{mode}-{at}" for mode in MODES for at in range(EACH)}
    wait_for(every, *members)
    wanted = {key for key in every if int(key.rpartition("-")[2]) % 3 != 2}
    wait_for(wanted, some)
    late = go.start("produce", **where, mode="late", delay=2)
    late.wait_event("done", SECONDS)
    wait_for({"g-late-0"}, *members)
    sent = producer.events("sent")
    bodies = {event["key"]: event["body"] for event in some.events("message")}
    return {
        "groups": [name for name in done["groups"] if name.startswith("TOOLS")],
        "statuses": sorted({event["status"] for event in sent}),
        "queues": sorted({event["queue"] for event in sent}),
        "failed": producer.events("failed"),
        "all": once(*members),
        "some": once(some),
        # Longer than 4 KiB: the client compresses.
        "sizes": sorted({len(body) for body in bodies.values()}),
        "ids": len({event["msgId"] for event in sent}) == len(sent) == 2 * EACH + 1,
    }


def test_every_way_of_sending_reaches_the_groups_that_want_it(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_sends)
    assert ours == real
    assert ours["statuses"] == [0]
    assert ours["sizes"] == [5_000]
    assert len(ours["all"]) == len(MODES) * EACH + 1
    assert len(ours["some"]) == len(MODES) * EACH * 2 // 3
    assert ours["ids"]


# --- order, broadcasting, later tries, pulling ----------------------------------------------------

ORDERED = 200


def story_of_consumers(cluster: Cluster, go: Go) -> Outcome:
    create(cluster, go, "GoReads")
    where = {"namesrv": cluster.namesrv, "topic": "GoReads"}
    in_order = go.start("consume", **where, group="GoClerk", orderly=True, fail=1)
    all_of_them = [go.start("consume", **where, group="GoEach", broadcast=True) for _ in range(2)]
    again = go.start("consume", **where, group="GoAgain", fail=1)
    for member in (in_order, again, *all_of_them):
        member.wait_event("started", SECONDS)
    producer = go.start("produce", **where, mode="order", count=ORDERED)
    producer.wait_event("done", SECONDS)
    every = {f"g-order-{at}" for at in range(ORDERED)}
    for member in (in_order, *all_of_them):
        wait_for(every, member)
    pulled = go.start("pull", **where, group="GoPull", count=ORDERED)
    pulled.wait_event("done", SECONDS)
    # The first later try is ten seconds away: delay level 3.
    wait_until(
        lambda: any(event["times"] for event in again.events("message")) and keys(again) == every,
        lambda: (cluster.kind, sorted(every - keys(again))),
    )
    rest = go.start("pull", **where, group="GoPull", count=1, seconds=3)
    left_over = rest.wait_event("done", SECONDS)["count"]
    tries = [event for event in again.events("message") if event["times"]]
    return {
        "in order": once(in_order),
        "backwards": backwards(in_order),
        "queues of an order": queues_of_orders(in_order),
        "each": [len(keys(member)) for member in all_of_them],
        "again": sorted({(event["times"], event["topic"]) for event in tries}),
        "pulled": once(pulled),
        "left over": left_over,
    }


def backwards(member: Reporter) -> int:
    """How often an order went backwards."""
    newest: dict[str, int] = {}
    steps = 0
    for event in member.events("message"):
        number = int(event["number"])
        steps += number < newest.get(event["sharding"], 0)
        newest[event["sharding"]] = number
    return steps


def queues_of_orders(member: Reporter) -> int:
    """The most queues that messages of one order were in."""
    found: dict[str, set[int]] = {}
    for event in member.events("message"):
        found.setdefault(event["sharding"], set()).add(event["queue"])
    return max(map(len, found.values()))


def test_orderly_broadcasting_pulling_and_failing_consumers_get_what_they_get_from_the_real_broker(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_consumers)
    assert ours == real
    assert ours["backwards"] == 0
    assert ours["queues of an order"] == 1
    assert ours["each"] == [ORDERED, ORDERED]
    assert ours["again"] == [(1, "GoReads")]
    assert len(ours["in order"]) == len(ours["pulled"]) == ORDERED
    assert ours["left over"] == 0


# --- transactions, requests -----------------------------------------------------------------------


def story_of_transactions(cluster: Cluster, go: Go) -> Outcome:
    create(cluster, go, "GoPaid")
    where = {"namesrv": cluster.namesrv, "topic": "GoPaid"}
    books = go.start("consume", **where, group="GoBooks")
    books.wait_event("started", SECONDS)
    plan = "commit,rollback,unknown-commit,unknown-rollback"
    payer = go.start("transact", **where, group="GoPayers", plan=plan)
    payer.wait_event("done", SECONDS)

    def checked() -> dict[str, tuple[str, str, str]]:
        events = payer.events("checked")
        return {event["key"]: (event["plan"], event["topic"], event["body"]) for event in events}

    open_ones = ("g-t-2", "g-t-3")
    wait_until(lambda: checked().keys() >= set(open_ones), lambda: (cluster.kind, payer.lines))
    wait_for({"g-t-0", "g-t-2"}, books)
    return {
        "sent": [(e["key"], e["status"], e["state"]) for e in payer.events("sent")],
        "checked": {key: checked()[key] for key in open_ones},
        "consumed": sorted(keys(books)),
    }


def test_transactions_end_as_their_producer_says(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_transactions)
    assert ours == real
    assert ours["consumed"] == ["g-t-0", "g-t-2"]


def story_of_requests(cluster: Cluster, go: Go) -> Outcome:
    create(cluster, go, "GoQuestions")
    where = {"namesrv": cluster.namesrv, "topic": "GoQuestions"}
    replier = go.start("answer", **where, group="GoRepliers")
    replier.wait_event("started", SECONDS)
    asker = go.start("ask", **where, count=2)
    asker.wait_event("done", 2 * SECONDS)
    wait_until(lambda: len(replier.events("answered")) >= 2, lambda: (cluster.kind, replier.lines))
    return {
        "replied": [(e["key"], e["body"], e["topic"]) for e in asker.events("replied")],
        "failed": asker.events("failed") + replier.events("failed"),
        "answered": sorted({(e["key"], e["status"]) for e in replier.events("answered")}),
    }


def test_a_reply_finds_the_one_who_asked(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_requests)
    assert ours == real
    topic = f"{CLUSTER_NAME}_REPLY_TOPIC"
    assert ours["replied"] == [(f"g-ask-{n}", f"re: g-ask-{n}", topic) for n in range(2)]
