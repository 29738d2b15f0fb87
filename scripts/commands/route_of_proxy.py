"""A route as a client of RocketMQ 5 asks a proxy for it. Needs the extra `grpc`."""

import ssl

from ...proxy.http2.one_call import CallError, one_call
from ...proxy.messages import definitions
from ...proxy.messages.status import Code

_PATH = f"/{definitions.SERVICE}/QueryRoute"
_METADATA = {
    "x-mq-client-id": "aerobee-doctor",
    "x-mq-language": "PYTHON",
    "x-mq-client-version": "5.0.8",
}
# A proxy that answers so serves: the topic is gone by now, or the call would have to be signed.
_SERVES = (Code.OK, Code.TOPIC_NOT_FOUND, Code.ILLEGAL_TOPIC, Code.UNAUTHORIZED, Code.FORBIDDEN)


async def ask(
    address: tuple[str, int], topic: str, tls: ssl.SSLContext | None
) -> tuple[str | None, list[tuple[str, int]]]:
    """Ask a proxy for a route. Returns the reason why there is no answer, None if there is one, and
    the addresses that the route names."""
    host, port = address
    request = definitions.message("QueryRouteRequest")()
    request.topic.name = topic
    request.endpoints.addresses.add(host=host, port=port)
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    try:
        data = await one_call(address, _PATH, request.SerializeToString(), _METADATA, tls=tls)
        answer = definitions.message("QueryRouteResponse").FromString(data)
    except (CallError, OSError) as wrong:
        return str(wrong), []
    if answer.status.code not in _SERVES:
        return f"QueryRoute is answered {answer.status.code}, {answer.status.message}", []
    found = {
        (each.host, each.port)
        for queue in answer.message_queues
        for each in queue.broker.endpoints.addresses
    }
    return None, sorted(found)
