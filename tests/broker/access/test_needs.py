"""docs/requests.md says what each request needs; brokers ask for exactly that."""

from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from aerobee.protocol.bodies.queues import LockBatchRequestBody
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.bodies.topic import CreateTopicListRequestBody, TopicConfig
from aerobee.protocol.message.message_id import offset_message_id

from ...documented_access import ACTIONS, documented
from .conftest import ADMIN, SHOP, Callers, allow

RESOURCES = {"Topic": "Topic:T", "Group": "Group:G", "Cluster": "Cluster:DefaultCluster"}
GROUP = SubscriptionGroupConfig("G")
LOCK = LockBatchRequestBody("G", "c", False, [MessageQueue("T", "broker-a", 0)]).encode()
CONSUMER = ConsumerData(
    "G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET", [subscription("T", "*")]
)
# Requests that name their topics and groups in the body.
BODIES = {
    codes.HEART_BEAT: HeartbeatData("c", [], [CONSUMER]).encode(),
    codes.LOCK_BATCH_MQ: LOCK,
    codes.UNLOCK_BATCH_MQ: LOCK,
    codes.BATCH_ACK_MESSAGE: BatchAckMessageRequestBody("broker-a", [BatchAck("G", "T")]).encode(),
    codes.UPDATE_AND_CREATE_TOPIC_LIST: CreateTopicListRequestBody([TopicConfig("T")]).encode(),
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: GROUP.encode(),
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: SubscriptionGroupList([GROUP]).encode(),
}
NAMES = {
    **dict.fromkeys(("topic", "b", "topicList", "originTopic"), "T"),
    **dict.fromkeys(("consumerGroup", "group", "groupName", "destGroup", "compareGroup"), "G"),
}


async def test_each_request_needs_what_its_document_says_and_no_more(
    guarded: Broker, as_user: Callers
) -> None:
    assert guarded.access is not None
    lists = guarded.access.lists
    admin, shop, nobody = as_user(ADMIN), as_user(SHOP), as_user()
    place = guarded.store.log_end
    assert (await admin.send("T")).code == codes.SUCCESS
    message = offset_message_id(guarded.store.host, place)
    names = NAMES | {"offset": str(place), "msgId": message, "delayLevel": "1"}

    async def is_refused(code: int, *rights: tuple[str, tuple[str, ...]]) -> bool:
        lists.forget("shop")
        for kind, actions in rights:
            allow(guarded, RESOURCES[kind], *actions)
        answer = await shop.ask(code, names, BODIES.get(code, b""))
        return "has no permission to access" in (answer.remark or "")

    wrong: list[tuple[str, str]] = []
    requests = documented("broker")
    for code, clauses in requests.items():
        name = codes.REQUEST_NAMES[code]
        assert clauses is not None, f"{name} without a signature"
        answer = await nobody.ask(code, names, BODIES.get(code, b""))
        if "username cannot be null" not in (answer.remark or ""):
            wrong.append((name, "nobody is served"))
        if await is_refused(code) is not bool(clauses):
            wrong.append((name, "a user without a rule"))
        for at, (kind, actions) in enumerate(clauses):
            others = tuple(one for one in ACTIONS if one not in actions)
            most = [(each, ACTIONS) for each in RESOURCES if each != kind] + [(kind, others)]
            if not await is_refused(code, *most):
                wrong.append((name, f"served without {kind} {actions}"))
            for action in actions:
                least = [(each, one[:1]) for each, one in clauses]
                least[at] = (kind, (action,))
                if await is_refused(code, *least):
                    wrong.append((name, f"refused with {least}"))
    assert wrong == []
    assert len(requests) > 90
