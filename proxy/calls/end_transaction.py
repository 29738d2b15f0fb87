"""EndTransaction: commit or rollback, whichever proxy the half message went through."""

from typing import Any

from ...protocol import codes
from ...protocol.headers.transactions import EndTransaction
from ...protocol.message.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from ..http2.call import Call
from ..messages import definitions
from ..messages.status import OK_STATUS, Code, StatusError
from ..messages.transaction_id import read
from .service import Service

EndTransactionResponse = definitions.message("EndTransactionResponse")
_RESOLUTIONS = definitions.enum("TransactionResolution")
_OUTCOMES = {
    _RESOLUTIONS["COMMIT"]: TRANSACTION_COMMIT,
    _RESOLUTIONS["ROLLBACK"]: TRANSACTION_ROLLBACK,
}
_FROM_CHECK = definitions.enum("TransactionSource")["SOURCE_SERVER_CHECK"]


async def end_transaction(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """An unknown outcome changes nothing: the broker asks again."""
    topic = await service.received_topic(request.topic)
    half = service.recent.take(topic, request.transaction_id) or read(request.transaction_id)
    outcome = _OUTCOMES.get(request.resolution)
    if outcome is None:
        return EndTransactionResponse(status=OK_STATUS)
    address = service.brokers.address(half.broker_name)
    if address is None:
        await service.topics.route(topic)
        address = service.brokers.address(half.broker_name)
    if address is None:
        raise StatusError(Code.BAD_REQUEST, f"cannot find broker {half.broker_name[:200]}")
    header = EndTransaction(
        *(topic, half.queue_offset, half.log_offset, outcome, half.message_id, topic),
        from_check=request.source == _FROM_CHECK,
        transaction_id=half.message_id,
    )
    await service.brokers.ask(address, codes.END_TRANSACTION, header)
    return EndTransactionResponse(status=OK_STATUS)
