"""Message trace of a consumer: start and result of the processing of each message.

In the format of Java's ConsumeMessageTraceHookImpl: a SubBefore and a SubAfter record with the same
request id. A message that the application releases unsettled has no SubAfter; a redelivered message
has a second pair. The trace wraps the consume service, so without it there is no overhead. A polled
message is done at once (DefaultLitePullConsumerImpl.poll).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ...protocol.message import properties as props
from ...protocol.names import without_namespace
from ..base.identity import new_unique_ids, now_ms
from ..base.message_view import MessageView
from ..cluster.cluster import Cluster
from ..group.received import ReceivedMessage
from ..producer.producer import Producer
from ..producer.trace import Tracer, flag
from .listening import Batch, Service, Verdict

# Messages with the application that are remembered; more have no SubAfter.
UNDER_WAY_MAX = 100_000


class ConsumeReturn(IntEnum):
    """Ordinals of Java's ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


OF_RESULT = {
    "CR_SUCCESS": ConsumeReturn.SUCCESS,
    "CR_LATER": ConsumeReturn.FAILED,
    "CR_THROW_EXCEPTION": ConsumeReturn.EXCEPTION,
    "CR_RETURN_NULL": ConsumeReturn.RETURNNULL,
}


def tracing_producer(cluster: Cluster) -> Callable[[str], Producer]:
    """A function that makes the producer of a trace, given its group. It has its own client."""
    servers = cluster.name_servers.source
    return lambda group: Producer(servers, group=group, security=cluster.security)


@dataclass(frozen=True, slots=True)
class _Under:
    request_id: str
    began_ms: int
    size: int


class ConsumeTrace:
    """Records in `tracer` when the application takes and finishes messages.

    Processing of `timeout_s` or longer is recorded as a timeout, as in Java.
    """

    def __init__(self, tracer: Tracer, timeout_s: float, namespace: str = "") -> None:
        self._tracer = tracer
        self._timeout_ms = timeout_s * 1000
        self._group = without_namespace(tracer.group, namespace)
        self._ids = new_unique_ids()
        self._under_way: dict[MessageView, _Under] = {}

    def before(self, messages: Sequence[MessageView]) -> None:
        """Record that the application got these messages, together."""
        traced = [each for each in messages if self._is_traced(each)]
        if not traced or len(self._under_way) + len(traced) > UNDER_WAY_MAX:
            return
        under = _Under(self._ids.next(), now_ms(), len(messages))
        self._under_way.update(dict.fromkeys(traced, under))
        region = traced[-1].stored_properties[props.MSG_REGION]
        records = [
            (
                "SubBefore",
                under.began_ms,
                region,
                self._group,
                under.request_id,
                each.msg_id,
                each.reconsume_times,
                each.stored_properties.get(props.KEYS),
            )
            for each in traced
        ]
        self._tracer.tell(traced[0].topic, records, _keys(traced))

    def after(self, messages: Sequence[MessageView], how: ConsumeReturn) -> None:
        """Record that the application finished them; those without a start record are skipped."""
        traced = [each for each in messages if each in self._under_way]
        if not traced:
            return
        under = self._under_way[traced[0]]
        for each in traced:
            del self._under_way[each]
        now = now_ms()
        is_late = now - under.began_ms >= self._timeout_ms
        code = ConsumeReturn.TIME_OUT if is_late else how
        cost_ms = (now - under.began_ms) // under.size
        records = [
            (
                "SubAfter",
                under.request_id,
                each.msg_id,
                cost_ms,
                flag(how is ConsumeReturn.SUCCESS),
                each.stored_properties.get(props.KEYS),
                int(code),
                now,
                self._group,
            )
            for each in traced
        ]
        self._tracer.tell(traced[0].topic, records, _keys(traced))

    def forget(self, message: MessageView) -> None:
        """Drop the start record of a message that the application released: no SubAfter follows."""
        self._under_way.pop(message, None)

    # --- inside ---------------------------------------------------------------------------------

    def _is_traced(self, message: MessageView) -> bool:
        # Brokers mark traced messages; Java's client drops records without a region.
        pairs = message.stored_properties
        return (
            props.MSG_REGION in pairs
            and pairs.get(props.TRACE_ON) != "false"
            and message.topic != self._tracer.topic
        )


class TracedService:
    """Records in `trace` the messages that pass through `service`."""

    def __init__(self, service: Service, trace: ConsumeTrace) -> None:
        self.settler: Service = self
        self._service = service
        self._trace = trace
        service.settler = self

    def taken(self, message: ReceivedMessage) -> None:
        """Record that the application got the message."""
        self._service.taken(message)
        self._trace.before([message])

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Record a success and acknowledge the message."""
        self._service.acknowledge(message)
        self._trace.after([message], ConsumeReturn.SUCCESS)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Record a failure and send the message back."""
        self._trace.after([message], ConsumeReturn.FAILED)
        await self._service.send_back(message, delay_level)

    def again(self, message: ReceivedMessage) -> None:
        """Drop the start record and release the message unsettled."""
        self._trace.forget(message)
        self._service.again(message)

    def begin(self, batch: Batch) -> None:
        """Record that the listener got the batch."""
        self._service.begin(batch)
        self._trace.before(batch.messages)

    async def finish(self, batch: Batch, verdict: Verdict) -> None:
        """Record the listener's result and finish the batch."""
        self._trace.after(batch.messages, OF_RESULT[verdict.result])
        await self._service.finish(batch, verdict)


def _keys(messages: Sequence[MessageView]) -> list[str]:
    return [key for each in messages for key in (each.msg_id, *each.keys)]
