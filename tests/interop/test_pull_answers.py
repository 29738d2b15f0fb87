"""Every kind of pull is answered by our broker as by the real one: code and offsets."""

from __future__ import annotations

from typing import NamedTuple

from aerobee.bench.loads import loadgen
from aerobee.harness.clusters import Cluster
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.message import properties
from aerobee.protocol.message.record import decode_all

TOPIC, OTHER_TOPIC = "Pulled", "NotPulled"
BATCH = 40  # more than one pull takes
NUMBERS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


class Pull(NamedTuple):
    """What is asked; without an expression the group's subscription holds."""

    name: str
    offset: int = 0
    expression: str | None = "*"
    kind: str | None = "TAG"
    queue_id: int = 0
    messages: int = 32
    group: str = "pulls"
    topic: str = TOPIC
    sub_version: int = 0
    flags: int = 0


ANSWERED = (
    Pull("all"),
    Pull("few", messages=3),
    Pull("none asked for", messages=0),
    Pull("more than one pull takes", messages=1_000),
    Pull("from the middle", 35),
    Pull("at the end", BATCH),
    Pull("beyond the end", BATCH + 1),
    Pull("before the start", -1),
    Pull("an empty queue", 0, queue_id=1),
    Pull("an empty queue, from the middle", 7, queue_id=1),
    Pull("by a tag", expression="a"),
    Pull("by tags", expression="b || c"),
    Pull("by a tag, few", expression="a", messages=2),
    Pull("by a tag that none has", expression="x"),
    Pull("without an expression type", expression="b", kind=None),
    Pull("by an expression", expression="n > 30", kind="SQL92"),
    Pull("by an expression, few", 1, expression="n BETWEEN 5 AND 9", kind="SQL92", messages=2),
    Pull("by an expression true of none", expression="n IS NULL", kind="SQL92"),
    Pull("as the heartbeat said", expression=None, group="beats"),
    Pull("as the heartbeat said, an older version", expression=None, group="beats", sub_version=4),
    Pull("with an offset to commit", 2, flags=COMMIT_OFFSET),
)
REFUSED = (
    Pull("an unknown topic", topic="Nowhere"),
    Pull("a queue that is not there", queue_id=4),
    Pull("a negative queue", queue_id=-1),
    Pull("no tag at all", expression="||"),
    Pull("no heartbeat", expression=None, group="silent"),
    Pull("a topic that the group has not", expression=None, group="beats", topic=OTHER_TOPIC),
    Pull("a newer version than the heartbeat's", expression=None, group="beats", sub_version=6),
    Pull("a group that is switched off", group="off"),
    Pull("a group that may not broadcast", expression=None, group="loud"),
    Pull("a topic that may not be read", topic="Closed"),
)


async def prepare(peers: Peers, cluster: Cluster) -> None:
    """Topics, messages, groups and subscriptions, the same on both sides."""
    for topic in (TOPIC, OTHER_TOPIC):
        loadgen.create_topic(cluster.broker, topic)

    async def ask(code: int, header: object = None, body: bytes = b"") -> None:
        answer = await peers.request(cluster.broker, code, header, body, 20)  # type: ignore[arg-type]
        assert answer.code == 0, answer.remark

    for number in range(BATCH):
        pairs = properties.encode({"TAGS": "abc"[number % 3], "n": str(number)}).decode()
        header = SendMessage("pg", TOPIC, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, pairs, 0)
        await ask(codes.SEND_MESSAGE_V2, header, b"%d" % number)
    loadgen.wait_stored(cluster.broker, TOPIC, BATCH)
    await ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("Closed", 4, 4, 2, sys_flag=0))
    for config in (
        SubscriptionGroupConfig("off", consume_enable=False),
        SubscriptionGroupConfig("loud", consume_broadcast_enable=False),
    ):
        await ask(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
    wanted = [subscription(TOPIC, "c", version=5)]
    groups = [
        ConsumerData(
            "beats", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET", wanted
        ),
        ConsumerData(
            "loud", "CONSUME_PASSIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET", wanted
        ),
    ]
    await ask(codes.HEART_BEAT, body=HeartbeatData("client", [], groups).encode())


async def pulled(peers: Peers, cluster: Cluster, pull: Pull, code: int) -> Command:
    flags = pull.flags | (SUBSCRIPTION if pull.expression is not None else 0)
    header = PullMessage(
        pull.group, pull.topic, pull.queue_id, pull.offset, pull.messages, flags, 1, 0,
        pull.sub_version, pull.expression, pull.kind,
    )  # fmt: skip
    return await peers.request(cluster.broker, code, header, b"", 20)


async def test_every_pull_has_the_answer_of_the_real_broker(
    both: tuple[Cluster, Cluster], peers: Peers
) -> None:
    for cluster in both:
        await prepare(peers, cluster)
    for pull in ANSWERED:
        for code in (codes.PULL_MESSAGE, codes.LITE_PULL_MESSAGE):
            found = []
            for cluster in both:
                answer = await pulled(peers, cluster, pull, code)
                fields = answer.fields()
                bodies = [record.body for record in decode_all(answer.body or b"")]
                numbers = [fields.get(name) for name in NUMBERS]
                found.append((answer.code, answer.remark, numbers, bodies))
            assert found[0] == found[1], pull.name
    for pull in REFUSED:
        refusals = []
        for cluster in both:
            answer = await pulled(peers, cluster, pull, codes.PULL_MESSAGE)
            refusals.append((answer.code, answer.fields().get("forbiddenType")))
            assert answer.remark, pull.name
        assert refusals[0] == refusals[1], pull.name
        assert refusals[0][0] != 0, pull.name
