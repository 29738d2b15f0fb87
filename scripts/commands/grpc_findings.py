"""What `aerobee doctor --grpc HOST:PORT` finds about a proxy: TLS, a route, its endpoints."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence

from ...client.admin.admin import Admin
from ...console.findings.rules import Finding, Severity
from ...console.texts import Text
from ...protocol.aio.connection import host_text
from ..named import user_topics
from ..output.command_error import CommandError

SECONDS = 5.0
ENDPOINTS_MAX = 20  # of a route that are tried
LENIENT, STRICT = "Java, Go, C++ and C#", "Python, Node.js and Rust"

Address = tuple[str, int]
# Asks for the addresses in a topic's route; the reason why there is no answer, else None, and them.
Ask = Callable[[Address, str, ssl.SSLContext | None], Awaitable[tuple[str | None, list[Address]]]]


async def of_proxies(admin: Admin, texts: Sequence[str]) -> list[Finding]:
    """The findings about the proxies at these addresses, "host:port". CommandError without the
    packages of gRPC, or for a text that is no address."""
    if not texts:
        return []
    try:
        from .route_of_proxy import ask
    except ImportError as wrong:
        raise CommandError(
            f"--grpc needs the packages h2 and protobuf, and {wrong.name} is not installed; run "
            "pip install 'aerobee[grpc]'"
        ) from None
    addresses = [_parsed(text) for text in texts]
    topics = await user_topics(admin)
    found: list[Finding] = []
    for address in addresses:
        found += await of_proxy(address, topics[0] if topics else "", ask, admin.security.context)
    return found


async def of_proxy(
    address: Address, topic: str, ask: Ask, trusted: ssl.SSLContext | None = None
) -> list[Finding]:
    """The findings about one proxy: its port, with TLS and without, and the endpoints in a route.
    `trusted` checks its certificate; None: by the authorities of the system."""
    where = Text("proxy %(address)s", address=host_text(address))
    why = await _reach(address)
    if why is not None:
        do = Text("start it (aerobee proxy), or open the port to this machine")
        return [Finding(where, Text("no connection: %(why)s", why=why), do, Severity.ERROR)]
    plain, endpoints = await ask(address, topic, None)
    lenient, over_tls = await ask(address, topic, _lenient())
    if plain is not None and lenient is not None:
        do = Text("check that it is a proxy of gRPC, and its log")
        return [Finding(where, Text("it does not answer: %(why)s", why=plain), do, Severity.ERROR)]
    found: list[Finding] = []

    def tell(what: Text, do: Text) -> None:
        found.append(Finding(where, what, do))

    if lenient is not None:
        tell(
            Text(
                "no TLS: %(why)s; clients of %(languages)s begin with TLS",
                why=lenient,
                languages=LENIENT,
            ),
            Text("set tlsServerMode to permissive, or switch TLS off in these clients"),
        )
    elif plain is not None:
        strict, _ = await ask(address, topic, trusted or ssl.create_default_context())
        if strict is not None:
            tell(
                Text(
                    "TLS only, with a certificate that clients of %(languages)s don't take: "
                    "%(why)s",
                    languages=STRICT,
                    why=strict,
                ),
                Text(
                    "give it a certificate of a known authority (tlsCertPath, tlsKeyPath), or "
                    "set tlsServerMode to permissive"
                ),
            )
    for each in (endpoints or over_tls)[:ENDPOINTS_MAX]:
        why = None if each == address else await _reach(each)
        if why is not None:
            tell(
                Text(
                    "it tells clients to go to %(address)s, where there is no connection: %(why)s",
                    address=host_text(each),
                    why=why,
                ),
                Text(
                    "open that port, or leave useEndpointPortFromRequest on, so that clients "
                    "stay at what they dialled"
                ),
            )
    return found


async def _reach(address: Address) -> str | None:
    """Connect to the address. Returns the reason why that fails, or None."""
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(*address)
    except TimeoutError:
        return f"no answer within {SECONDS:g} s"
    except OSError as wrong:
        return wrong.strerror or str(wrong)
    writer.close()
    return None


def _lenient() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _parsed(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise CommandError(f"--grpc is {text!r}; give HOST:PORT, such as 127.0.0.1:8081")
    return host.strip("[]"), int(port)
