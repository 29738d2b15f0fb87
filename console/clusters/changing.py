"""Changes of one broker each, for results that name every broker and queue.

`Admin` changes all brokers with one call, which ends at the first refusal. A request of this file
goes to one address, is sent once, and never repeated.
"""

from ...client.admin.admin import Admin
from ...client.admin.base import ADMIN_SECONDS
from ...client.base.message import Message
from ...client.base.receipts import STATUS_OF_CODE, SendReceipt, receipt_of
from ...client.base.responses import body_of, header_of
from ...client.errors import BrokerError
from ...client.producer.encoding import Packer
from ...protocol import codes
from ...protocol.bodies.access import AclInfo, UserInfo
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.offsets import ResetOffsetBody
from ...protocol.bodies.running import ConsumeMessageDirectlyResult
from ...protocol.headers.access import AclResource, AclSubject, UserName
from ...protocol.headers.admin import ResetOffset
from ...protocol.headers.clients import ConsumeMessageDirectly
from ...protocol.headers.groups import DeleteGroup
from ...protocol.headers.offsets import UpdateConsumerOffset
from ...protocol.headers.send import RecallMessage, SendMessageResponse
from ...protocol.headers.topics import TopicName, UpdateTopic
from ...protocol.message.record import Record

PRODUCER_GROUP = "aerobee-console"


class Changing(Admin):
    """The changes of a console."""

    async def put_topic(self, address: str, header: UpdateTopic) -> None:
        """Make or change a topic on one broker."""
        await self._ask(address, codes.UPDATE_AND_CREATE_TOPIC, header)

    async def drop_topic(self, address: str, topic: str) -> None:
        """Delete a topic from one broker."""
        await self._ask(address, codes.DELETE_TOPIC_IN_BROKER, TopicName(topic))

    async def forget_topic(self, topic: str) -> None:
        """Delete a topic from every name server."""
        servers = self._open().name_servers
        await servers.ask_all(codes.DELETE_TOPIC_IN_NAMESRV, TopicName(topic))

    async def put_group(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Make a group or replace its settings on one broker."""
        body = config.encode()
        await self._ask(address, codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def drop_group(self, address: str, group: str) -> None:
        """Delete a group and its progress from one broker."""
        await self._ask(address, codes.DELETE_SUBSCRIPTIONGROUP, DeleteGroup(group, True))

    async def reset_queue(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Reset a group's offset in one queue, members or not. Only for brokers with
        useServerSideResetOffset: others reset all queues."""
        header = ResetOffset(group, queue.topic, 0, True, queue.queue_id, offset)
        await self._ask(address, codes.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def reset_members(
        self, address: str, group: str, topic: str, ms: int
    ) -> dict[MessageQueue, int]:
        """Reset a group's offsets on one broker to a time through its members; -1 is the end."""
        code, header = codes.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffset(group, topic, ms, True)
        return dict(
            body_of(await self._ask(address, code, header), ResetOffsetBody, code).offset_table
        )

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a group without members in one queue."""
        header = UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)
        await self._ask(address, codes.UPDATE_CONSUMER_OFFSET, header)

    async def consume_at(
        self, address: str, group: str, client_id: str, msg_id: str, topic: str
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume a message of this broker at once."""
        code = codes.CONSUME_MESSAGE_DIRECTLY
        header = ConsumeMessageDirectly(group, client_id, msg_id, topic=topic)
        return body_of(await self._ask(address, code, header), ConsumeMessageDirectlyResult, code)

    async def recall_at(self, address: str, topic: str, handle: str) -> None:
        """Take back a message that waits for its time."""
        header = RecallMessage(topic, handle, PRODUCER_GROUP)
        await self._ask(address, codes.RECALL_MESSAGE, header)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be written now."""
        return list((await self._open().publish_route(topic)).publish)

    async def send_once(self, message: Message, queue: MessageQueue) -> SendReceipt:
        """Send a message to one queue with one request."""
        packed = Packer().pack(message)
        cluster = self._open()
        await cluster.publish_route(message.topic)
        address = cluster.address_of(queue.broker_name)
        header = packed.header(PRODUCER_GROUP, queue)
        answer = await cluster.request(
            address, packed.code, header, packed.body, timeout_s=ADMIN_SECONDS
        )
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address, f"send to {message.topic}")
        found = header_of(answer, SendMessageResponse, packed.code)
        return receipt_of(found, packed.msg_id, queue, status)

    # --- dead letters ---------------------------------------------------------------------------

    async def retry_topic(self, topic: str, group: str) -> str:
        """The retry topic of a group for messages of a topic; ClientError for a group that reads in
        order."""
        return await self._retry_topic(topic, group)

    async def send_letter(self, letter: Record, topic: str, keys: str, *, is_retry: bool) -> None:
        """Send a dead letter to a topic with these keys; with `is_retry` its group sees the topic
        that it was sent to first."""
        await self._send_letter(letter, topic, original=not is_retry, keys=keys)

    # --- users and rules ------------------------------------------------------------------------

    async def make_user(self, address: str, user: UserInfo) -> None:
        """Create a user at one broker."""
        name = UserName(user.username or "")
        await self._ask(address, codes.AUTH_CREATE_USER, name, user.encode())

    async def change_user(self, address: str, user: UserInfo) -> None:
        """Change the fields of a user that are not None at one broker."""
        name = UserName(user.username or "")
        await self._ask(address, codes.AUTH_UPDATE_USER, name, user.encode())

    async def drop_user(self, address: str, name: str) -> None:
        """Delete a user from one broker."""
        await self._ask(address, codes.AUTH_DELETE_USER, UserName(name))

    async def make_rules(self, address: str, rules: AclInfo) -> None:
        """Create rules at one broker; replaces those about the same resources."""
        subject = AclSubject(rules.subject)
        await self._ask(address, codes.AUTH_CREATE_ACL, subject, rules.encode())

    async def change_rules(self, address: str, rules: AclInfo) -> None:
        """Change rules about resources at one broker."""
        subject = AclSubject(rules.subject)
        await self._ask(address, codes.AUTH_UPDATE_ACL, subject, rules.encode())

    async def drop_rule(self, address: str, subject: str, resource: str) -> None:
        """Delete the rule about a resource from one broker."""
        await self._ask(address, codes.AUTH_DELETE_ACL, AclResource(subject, resource=resource))
