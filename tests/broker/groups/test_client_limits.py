"""Limits of what clients register; each refusal names its reason."""

import asyncio

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command
from aerobee.store.base.errors import DiskFull
from aerobee.store.files.json_journal import JsonJournal

from ...waiting import until
from ..conftest import Caller, Config, Start, records


async def tell(
    caller: Caller,
    *,
    client: str = "c1",
    producers: list[str] | None = None,
    consumers: dict[str, list[str]] | None = None,
    tag: str = "a",
) -> Command:
    """Sends a heartbeat; `consumers` maps a group to its topics, each with one tag."""
    told = [
        ConsumerData(
            group,
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
            [subscription(topic, tag, version=1) for topic in topics],
        )
        for group, topics in (consumers or {}).items()
    ]
    names = [ProducerData(name) for name in producers or ()]
    return await caller.ask(codes.HEART_BEAT, None, HeartbeatData(client, names, told).encode())


def refused(answer: Command, code: int, *reasons: str) -> bool:
    return answer.code == code and all(reason in (answer.remark or "") for reason in reasons)


async def test_a_client_id_or_group_name_over_the_limit_is_refused(
    broker: Broker, caller: Caller
) -> None:
    long = await tell(caller, client="c" * 513, producers=["pg"])
    assert refused(long, codes.SYSTEM_ERROR, "has 513 characters, the limit is 512", "shorter")
    name = await tell(caller, producers=["p" * 256])
    assert refused(name, codes.SYSTEM_ERROR, "has 256 characters, the limit is 255", "shorter")
    assert broker.clients.producers() == {}


async def test_a_heartbeat_with_too_many_groups_registers_none(
    broker: Broker, caller: Caller
) -> None:
    answer = await tell(caller, consumers={f"g{n}": [] for n in range(1_001)})
    assert refused(answer, codes.SYSTEM_ERROR, "in 1001 consumer groups, the limit is 1000")
    assert broker.groups.get("g0") is None


async def test_the_groups_of_one_connection_are_limited(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.groups.clients.GROUPS_PER_CLIENT_MAX", 2)
    for group in ("one", "two"):
        assert (await tell(caller, producers=[group])).code == 0
        assert (await tell(caller, consumers={group: []})).code == 0
    for answer in (
        await tell(caller, producers=["three"]),
        await tell(caller, consumers={"three": []}),
    ):
        assert refused(answer, codes.SYSTEM_ERROR, "would be in 3", "the limit is 2")
    assert (await tell(caller, producers=["one"], consumers={"two": []})).code == 0
    assert sorted(broker.clients.producers()) == ["one", "two"]
    await caller.ask(codes.UNREGISTER_CLIENT, {"clientID": "c1", "producerGroup": "one"})
    assert (await tell(caller, producers=["three"])).code == 0


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("GROUPS_MAX", "2 consumer groups have clients"), ("MEMBERS_MAX", "have 2 members")],
)
async def test_the_groups_and_members_of_the_broker_are_limited(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    monkeypatch.setattr(f"aerobee.broker.groups.clients.{limit}", 2)
    assert (await tell(caller, consumers={"one": [], "two": []})).code == 0
    answer = await tell(caller, consumers={"three": []})
    assert refused(answer, codes.SYSTEM_BUSY, "[OVERLOAD]", reason, "limit of 2", "more brokers")
    await caller.ask(codes.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "one"})
    assert (await tell(caller, consumers={"three": []})).code == 0


async def test_subscriptions_count_against_the_memory_budget_and_release_it(
    start: Start, config: Config
) -> None:
    broker = await start(config(client_memory_bytes_max=16 << 20))
    caller, other = Caller(broker), Caller(broker)
    topics = [f"T{n}" for n in range(500)]
    assert (await tell(caller, consumers={"one": topics})).code == 0
    taken = broker.clients.bytes
    assert 2 * 500 * 1_000 < taken < 2 << 20
    for _ in range(3):  # a repeated heartbeat costs nothing
        assert (await tell(caller, consumers={"one": topics})).code == 0
    assert broker.clients.bytes == taken
    answer = await tell(other, client="c2", consumers={"two": topics}, tag="a" * 5_000)
    assert refused(answer, codes.SYSTEM_BUSY, f"take {taken} bytes", f"the limit is {4 << 20}")
    assert "clientMemoryBytesMax" in (answer.remark or "")
    assert broker.clients.consumer_group("two") is None
    assert (await tell(other, client="c2", consumers={"one": topics[:1]})).code == 0
    for one in (caller, other):
        await one.peers.close()
    await until(lambda: not broker.clients.consumer_group("one"))
    assert broker.clients.bytes == 0


async def test_a_connection_that_changes_its_client_id_is_registered_by_the_last(
    broker: Broker, caller: Caller
) -> None:
    for number in range(3):
        await tell(caller, client=f"c{number}", producers=["pg"])
    assert broker.clients.find_producer("c0") is None
    assert broker.clients.find_producer("c2") is not None
    await tell(caller, client="c3", producers=["other"])
    await caller.peers.close()
    await until(lambda: not broker.clients.producers())
    assert [broker.clients.find_producer(f"c{n}") for n in range(4)] == [None] * 4


class Saves:
    """Counts the writes to the journals of the tables, by name; `wrong` makes them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.wrong: Exception | None = None
        append = JsonJournal.append

        def note(journal: JsonJournal, lines: bytes) -> None:
            if self.wrong is not None:
                raise self.wrong
            self.names.append(journal.path.name)
            append(journal, lines)

        monkeypatch.setattr(JsonJournal, "append", note)


async def test_new_groups_of_a_heartbeat_cost_one_write_per_journal(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Saves(monkeypatch)
    assert (await tell(caller, consumers={f"g{n}": ["T"] for n in range(50)})).code == 0
    assert saves.names.count("subscriptionGroup.json.journal") == 1
    assert saves.names.count("topics.json.journal") == 1
    assert all(broker.topics.get(f"%RETRY%g{n}") for n in range(50))


async def test_new_topics_of_one_tick_cost_one_write_before_their_responses(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Saves(monkeypatch)
    told: list[str] = []
    broker.topics.on_change = lambda config: told.append(config.topic_name or "")
    await asyncio.gather(*(caller.send(f"T{n}", b"%d" % n) for n in range(8)))
    assert saves.names.count("topics.json.journal") == 1
    assert sorted(told) == [f"T{n}" for n in range(8)]
    saved = (broker.root / "config" / "topics.json.journal").read_text()
    for number in range(8):
        assert f'"T{number}"' in saved
        assert [r.body for r in records(await caller.pull(f"T{number}"))] == [b"%d" % number]


@pytest.mark.parametrize("batch", [False, True])
async def test_a_topic_that_cannot_be_persisted_takes_no_message_and_harms_no_other(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch, batch: bool
) -> None:
    assert (await caller.send("Old")).code == 0
    assert len(records(await caller.pull("Old"))) == 1
    saves = Saves(monkeypatch)
    saves.wrong = DiskFull("no room to write topics.json; free some space, then go on")
    sends = (caller.send("New", batch=batch), caller.send("Old"), caller.send("New"))
    new, old, again = await asyncio.gather(*sends)
    assert old.code == codes.SUCCESS
    for answer in (new, again):
        assert answer.code == codes.SERVICE_NOT_AVAILABLE
        assert "topics.json" in (answer.remark or "")
    assert broker.topics.get("New") is None
    assert len(records(await caller.pull("Old"))) == 2
    saves.wrong = None
    assert (await caller.send("New")).code == codes.SUCCESS
    assert len(records(await caller.pull("New"))) == 1


async def test_a_group_that_cannot_be_persisted_is_refused_with_the_reason(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caller.send("T")
    saves = Saves(monkeypatch)
    saves.wrong = DiskFull("no room to write subscriptionGroup.json; free some space")
    answer = await caller.pull("T", group="new")
    assert refused(answer, codes.SERVICE_NOT_AVAILABLE, "subscriptionGroup.json", "free some")
    saves.wrong = None
    assert (await caller.pull("T", group="new")).code == codes.SUCCESS
