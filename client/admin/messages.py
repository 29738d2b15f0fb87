"""Messages: look-up by id and by key."""

from ...protocol import codes
from ...protocol.errors import Malformed
from ...protocol.headers.topics import QueryMessage, ViewMessage
from ...protocol.headers.transactions import ResumeCheck
from ...protocol.message.message_id import host_text, parse_offset_message_id
from ...protocol.message.record import Record, decode_all, decode_record
from ..errors import BrokerError, ClientError
from .base import ADMIN_SECONDS, Asking

EVER = (1 << 63) - 1
MESSAGES_MAX = 64  # of one answer; brokers have a limit of their own


class MessageAdmin(Asking):
    """The calls about messages."""

    async def message(self, offset_msg_id: str) -> Record:
        """The stored message with this offset message id, read from the broker that the id
        names."""
        try:
            host, offset = parse_offset_message_id(offset_msg_id)
        except ValueError as wrong:
            raise ClientError(str(wrong)) from None
        address = host_text(host)
        answer = await self._ask(address, codes.VIEW_MESSAGE_BY_ID, ViewMessage(offset))
        try:
            return decode_record(answer.body or b"")
        except Malformed as wrong:
            raise ClientError(f"{address} gave a broken message: {wrong}") from wrong

    async def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = EVER,
        messages_max: int = MESSAGES_MAX,
        unique: bool = False,
    ) -> list[Record]:
        """The messages of a topic with a key, stored in a time, the oldest first.

        With `unique` the key is the id that the sender gave it (UNIQ_KEY).
        """
        header = QueryMessage(
            topic, key, messages_max, begin_ms, end_ms, "true" if unique else None
        )
        found: dict[tuple[bytes, int], Record] = {}
        for address in (await self._masters_of(topic)).values():
            answer = await self._open().request(
                address, codes.QUERY_MESSAGE, header, timeout_s=ADMIN_SECONDS
            )
            if answer.code == codes.QUERY_NOT_FOUND:
                continue
            if answer.code != codes.SUCCESS:
                raise BrokerError(answer.code, answer.remark, address, f"query {key} of {topic}")
            try:
                records = decode_all(answer.body or b"")
            except Malformed as wrong:
                raise ClientError(f"{address} gave a broken message: {wrong}") from wrong
            found.update(((each.store_host, each.log_offset), each) for each in records)
        return sorted(found.values(), key=lambda each: (each.store_ms, each.log_offset))

    async def resume_transaction(self, address: str, offset_msg_id: str) -> None:
        """Make a broker check a transaction again that it has given up."""
        await self._ask(address, codes.RESUME_CHECK_HALF_MESSAGE, ResumeCheck(offset_msg_id))
