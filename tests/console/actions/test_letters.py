"""Dead letters that are chosen by their ids: only these are sent, and each id that is none is
named at its field."""

import random
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.console.actions.action import Unfit
from aerobee.console.actions.letters import LETTERS_MAX
from aerobee.console.actions.redrive import Phase, key_of
from aerobee.console.actions.redrives import UNTYPED_MAX
from aerobee.console.messages.shown import unpacked
from aerobee.protocol.message.message_id import offset_message_id
from aerobee.protocol.message.record import Record
from aerobee.protocol.names import DLQ_PREFIX
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..fake_cluster import Shop
from .runner import ActionRunner, rows
from .test_redrives import given_up, started

TEXT = "\u202e\u05d0\u05d1 100%"


async def letter(runner: ActionRunner, group: str, key: str) -> Record:
    """The only dead letter of a group with this key."""
    (found,) = await runner.admin.query(DLQ_PREFIX + group, key)
    return found


async def refused(runner: ActionRunner, **form: str) -> str:
    """The fault at the field of the letters."""
    with pytest.raises(Unfit) as wrong:
        await runner.plan("redrive", **form)
    assert wrong.value.field == "letters"
    return str(wrong.value)


async def test_three_of_five_go_to_their_group_and_the_others_stay(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "five", "five", 5)
    found = [await letter(runner, "five", f"k{n}") for n in range(5)]
    by_message_id = found[3].properties["UNIQ_KEY"]
    ids = f"{found[1].offset_id}, {found[2].offset_id.lower()} {by_message_id}"
    # The same one by another id is no fourth letter.
    form = {"group": "five", "letters": f"{ids},{found[1].offset_id},{found[3].offset_id}"}
    plan = await runner.plan("redrive", **form)
    assert plan.sentence == "Send 3 dead letters of five again"
    assert rows(plan) == [("%RETRY%five", "3 dead letters of five", "3 sent")]
    run = await started(runner, **form)
    await run.finished.wait()
    assert (run.phase, run.why, run.sentence) == (
        Phase.ENDED,
        None,
        "3 of 3 dead letters sent",
    )
    async with Consumer(cluster.name_server, group="five", topics=["five"]) as consumer:
        bodies = []
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            bodies.append(message.body)
            await message.ack()
    assert sorted(bodies) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
    # A letter that went is skipped, and that is said.
    again = {"group": "five", "letters": f"{found[1].offset_id} {found[4].offset_id}"}
    plan = await runner.plan("redrive", **again)
    assert plan.sentence == "Send 1 dead letter of five again"
    assert "1 was sent before and is skipped" in plan.notes
    run = await started(runner, **again)
    await run.finished.wait()
    assert run.sentence == "1 of 1 dead letter sent, 1 was sent before and is skipped"
    plan = await runner.plan("redrive", group="five", letters=found[1].offset_id)
    assert plan.refusals == ["no dead letter is to be sent"]


async def test_a_letter_that_is_none_of_the_group_is_named(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "ours", "ours", 1)
    await given_up(cluster, "theirs", "theirs", 1)
    own, other = await letter(runner, "ours", "k0"), await letter(runner, "theirs", "k0")
    (sent,) = await runner.admin.query("ours", "k0")
    for ident in (other.offset_id, other.properties["UNIQ_KEY"], sent.offset_id, "garbage", TEXT):
        for word in ident.split():
            text = await refused(runner, group="ours", letters=f"{own.offset_id} {word}")
            assert text.startswith(f"ours has no dead letter {word} on the brokers that answer")
    # An id of this broker where no record lies, as of one that retention took.
    gone = own.offset_id[:-16] + f"{1 << 40:016X}"
    text = await refused(runner, group="ours", letters=gone)
    assert text.startswith(f"dead letter {gone} can't be read")
    assert "leave it out if retention took it" in text
    # Another cluster's address is not asked.
    away = "7F000001" + "00000001" + own.offset_id[-16:]
    assert "ours has no dead letter" in await refused(runner, group="ours", letters=away)
    many = " ".join(f"id{n}" for n in range(LETTERS_MAX + 1))
    text = await refused(runner, group="ours", letters=many)
    assert text.startswith("101 letters are given, the limit is 100")
    form = {"group": "ours", "letters": own.offset_id}
    assert "clear one of them" in await refused(runner, **form, where="k0")
    assert "clear one of them" in await refused(runner, **form, begin="2026-01-01")
    assert "no dead letter" in await refused(runner, group="nobody", letters="x")


async def test_few_letters_go_without_the_name_of_their_group(runner: ActionRunner) -> None:
    action = runner.actions["redrive"]
    for count, wanted in ((1, None), (UNTYPED_MAX, None), (UNTYPED_MAX + 1, "g"), (0, "g")):
        ids = ",".join(f"id{n}" for n in range(count))
        values = action.read(runner.whole("redrive", {"group": "g", "letters": ids}))
        assert action.wanted(values) == wanted


async def test_an_id_of_two_letters_does_not_say_which(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "twice", "twice", 1)
    first = await letter(runner, "twice", "k0")
    run = await started(runner, group="twice", letters=first.offset_id)
    await run.finished.wait()
    async with Consumer(cluster.name_server, group="twice", topics=["twice"]) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack(delay_level=-1)
    found = await runner.admin.query(DLQ_PREFIX + "twice", "k0")
    assert len(found) == 2
    ident = first.properties["UNIQ_KEY"]
    text = await refused(runner, group="twice", letters=ident)
    assert text.startswith(f"2 dead letters of twice have the id {ident}")
    plan = await runner.plan("redrive", group="twice", letters=found[1].offset_id)
    assert plan.sentence == "Send 1 dead letter of twice again"


async def test_a_word_is_an_id_or_one_of_several_keys(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    address = cluster.name_server
    await runner.do("topic-create", topic="keyed", write="1", read="1", brokers="broker-a")
    async with Producer(address) as producer:
        for keys in (["order-1", "ann"], ["order-10", "ann"], ["order-2"]):
            await producer.send(Message("keyed", b"x", keys=keys))
    async with Consumer(address, group="keyed", topics=["keyed"], start="earliest") as consumer:
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            await message.nack(delay_level=-1)
    ident = (await letter(runner, "keyed", "order-2")).properties["UNIQ_KEY"]
    for where, count in (("order-1", 1), ("ann", 2), (ident, 1), ("key = 'order-2'", 1)):
        plan = await runner.plan("redrive", group="keyed", where=where)
        assert [one.after for one in plan.changes] == [f"{count} sent"], where
    plan = await runner.plan("redrive", group="keyed", where="order-3")
    assert plan.refusals == ["no dead letter is to be sent"]


async def test_a_letter_of_4_mib_and_one_with_text_from_right_to_left(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "big", "big", 1)
    body = random.Random(1).randbytes((4 << 20) - 8_192)  # it may be packed, which adds some
    async with Producer(cluster.name_server) as producer:
        await producer.send(Message("big", body, keys=["large"], tags=TEXT))
    async with Consumer(cluster.name_server, group="big", topics=["big"]) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack(delay_level=-1)
    found = await letter(runner, "big", "large")
    run = await started(runner, group="big", letters=found.offset_id)
    await run.finished.wait()
    assert run.counts.sent == 1
    (copy,) = await runner.admin.query("%RETRY%big", key_of(found))
    assert (unpacked(copy), copy.properties["TAGS"]) == (body, TEXT)


async def test_a_letter_whose_broker_is_away_is_named_with_the_reason(tmp_path: Path) -> None:
    shop = Shop("shop")
    await shop.start()
    host, port = shop.broker.address.split(":")
    ident = offset_message_id(IPv4Address(host).packed + int(port).to_bytes(4, "big"), 7)
    async with ActionRunner(shop.address, tmp_path / "redrives") as runner:
        await shop.broker.stop()
        text = await refused(runner, group="shop", letters=ident)
        assert text.startswith(f"dead letter {ident} can't be read: ")
        assert shop.broker.address in text
    await shop.stop()


async def test_a_letter_that_goes_before_its_turn_is_told_and_the_others_are_sent(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "left", "left", 2)
    one, two = await letter(runner, "left", "k0"), await letter(runner, "left", "k1")
    gone = one.offset_id[:-16] + f"{1 << 40:016X}"
    action = runner.actions["redrive"]
    form = {"group": "left", "letters": f"{one.offset_id} {two.offset_id}"}
    values = action.read(runner.whole("redrive", form))
    plan = await action.plan(runner.watched, values, {})
    assert plan.pins["letters"] == [one.offset_id, two.offset_id]
    plan.pins["letters"][0] = gone  # as if retention took it after the preview
    run = runner.redrives.start(runner.watched, values, plan)
    await run.finished.wait()
    assert run.sentence == "1 of 2 dead letters sent"
    assert run.why is not None
    assert run.why.startswith(f"dead letter {gone} can't be read")
