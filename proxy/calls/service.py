"""What every RPC works with, and the frame around each: identity, access, errors as statuses."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ...client.errors import AerobeeError
from ...protocol.errors import Refusal
from ...protocol.histogram import Histogram
from ..access.access import Access
from ..handles.keeper import Keeper
from ..handles.popped import Popped
from ..http2.call import SERVER_STREAM, UNARY, Call, Method
from ..messages import definitions, times
from ..messages.names import joined, topic_of
from ..messages.status import Code, Status, StatusError, of_error
from ..messages.transactions import RecentTransactions
from ..routes.brokers import Brokers
from ..routes.topics import Topics
from ..settings.config import ProxyConfig
from ..telemetry.clients import Clients
from ..telemetry.commands import Commands
from ..telemetry.membership import Membership
from .spans import ProxySpans

log = logging.getLogger(__name__)

CLIENT_ID_CHARS_MAX = 512
# Of the latencies of calls.
BOUNDS_MS = (1, 3, 5, 7, 10, 100, 200, 400, 600, 800, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000)


@dataclass(slots=True)
class Service:
    """The parts of a proxy."""

    config: ProxyConfig
    brokers: Brokers
    topics: Topics
    popped: Popped
    keeper: Keeper
    clients: Clients
    commands: Commands
    membership: Membership
    recent: RecentTransactions
    access: Access
    own_port: Callable[[], int]  # known once the proxy listens
    spans: ProxySpans | None  # with a collector of spans
    # By RPC and code, in ms.
    latencies: dict[tuple[str, int], Histogram] = field(default_factory=dict)

    def ended(self, rpc: str, code: int, began: float) -> None:
        """A call that began at this time (time.monotonic) has ended."""
        found = self.latencies.get((rpc, code))
        if found is None:
            found = self.latencies[rpc, code] = Histogram(BOUNDS_MS)
        found.record((time.monotonic() - began) * 1_000)

    async def received_topic(self, resource: Any) -> str:
        """The topic of a received message. Requests name it by the name alone, whatever their
        namespace, as at RocketMQ's proxy; where there is no such topic, namespace and name are
        one, as RocketMQ's proxy parts them in messages. StatusError ILLEGAL_TOPIC."""
        topic, other = topic_of(resource), joined(resource)
        if other is None or await self.topics.is_there(topic):
            return topic
        return other if await self.topics.is_there(other) else topic


def client_id_of(call: Call) -> str:
    """The id of the client; StatusError CLIENT_ID_REQUIRED without one."""
    found = call.text(b"x-mq-client-id").strip()
    if not found:
        raise StatusError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(found) > CLIENT_ID_CHARS_MAX:
        raise StatusError(
            Code.BAD_REQUEST,
            f"the client id has {len(found)} characters, the limit is {CLIENT_ID_CHARS_MAX}",
        )
    return found


# Called with the parts, the call, the client's id and the request; returns the answer.
Unary = Callable[[Service, Call, str, Any], Awaitable[Any]]
# Called with the same; writes its answers itself, and its error is the last of them.
Streaming = Callable[[Service, Call, str, Any], Awaitable[None]]


def unary(name: str, handle: Unary, service: Service) -> Method:
    """The method of an RPC with one answer; errors become its status."""
    answer_class = definitions.message(f"{name}Response")

    async def serve(call: Call, request: Any) -> Any:
        began = time.monotonic()
        answer, fault = await _outcome(name, handle, service, call, request)
        if fault is not None:
            answer = answer_class(status=fault)
        service.ended(name, answer.status.code, began)
        return answer

    return Method(UNARY, definitions.message(f"{name}Request").FromString, serve)


def streaming(
    name: str, handle: Streaming, service: Service, finish: Callable[[Any, int], None] | None = None
) -> Method:
    """The method of an RPC with a stream of answers. `finish` completes the last answer after an
    error; it gets that answer and the time in ms."""
    answer_class = definitions.message(f"{name}Response")

    async def serve(call: Call, request: Any) -> None:
        began = time.monotonic()
        _, fault = await _outcome(name, handle, service, call, request)
        service.ended(name, Code.OK if fault is None else fault.code, began)
        if fault is None:
            return
        call.put(answer_class(status=fault))
        if finish is not None:
            last = answer_class()
            finish(last, service.brokers.now_ms())
            call.put(last)

    return Method(SERVER_STREAM, definitions.message(f"{name}Request").FromString, serve)


async def _outcome(
    name: str, handle: Unary, service: Service, call: Call, request: Any
) -> tuple[Any, Any]:
    """Call a handler. Returns its response and None, or None and the status of an error."""
    try:
        client_id = client_id_of(call)
        await service.access.check(name, call, request)
        service.clients.heard(client_id)
        return await handle(service, call, client_id, request), None
    except (StatusError, AerobeeError, Refusal) as wrong:
        return None, of_error(wrong).status()
    except Exception:
        log.exception("%s failed", name)
        said = "the proxy failed; its log says why"
        return None, Status(code=Code.INTERNAL_SERVER_ERROR, message=said)


def delivery_time(answer: Any, now_ms: int) -> None:
    """The last answer of a receive."""
    times.set_ms(answer.delivery_timestamp, now_ms)
