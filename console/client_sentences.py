"""The sentences of the client and of the protocol that pages say in other languages, as patterns.

Errors of the client are English texts that more programs than the console show. A page finds their
pattern again: each name stands for what its expression in `_VALUES` takes, or for any text. A text
without a pattern here stays as it is.
"""

import re
from functools import cache

NO_TOPIC = (
    "no name server knows topic %(topic)s; create it (`aerobee topics create %(topic)s`, mqadmin "
    "updateTopic), start its broker if that has not come back, or check the topic's spelling and "
    "the name server's address"
)
NO_MEMBER = "no broker has a member %(client)s of group %(group)s"
SENTENCES = (
    # connections
    "%(why)s; failures in a row: %(times)s, next try in %(seconds)s s",
    "can't connect to %(address)s within %(seconds)s s",
    "can't connect to %(address)s: %(why)s",
    "%(text)s is not an address of the form host:port",
    "connection to %(address)s closed",
    "connection to %(address)s closed: %(why)s",
    "connection to %(address)s closed %(why)s",
    "before it answered anything; does it want TLS? A command takes --tls or AEROBEE_TLS=true, a "
    "client Security(tls=True), a broker useTLS=true. Or it speaks something else, as a proxy does "
    "at its gRPC port (8081)",
    "it does not speak TLS there; switch TLS off, or set its tlsServerMode to permissive",
    "no answer from %(address)s to %(request)s within %(seconds)s s",
    "no answer from %(address)s to %(request)s within %(seconds)s s; it may have been done all the "
    "same",
    "name server %(address)s: %(why)s",
    "no name server answered, %(count)s tried in %(seconds)s s (%(why)s); check that it runs "
    "(`aerobee up` starts one), and the address, the port and the firewall",
    "%(address)s gave a broken message: %(why)s",
    "%(first)s; %(address)s: %(why)s",
    "%(address)s: %(why)s",
    "this client is closed; make a new one",
    "the client was closed while the call was waiting",
    "the answer to %(request)s (%(code)s) can't be read: %(why)s; is the other side a RocketMQ "
    "broker or name server?",
    # routes
    NO_TOPIC,
    "broker %(name)s with id %(id)s is in no route; known are %(known)s; check that it runs and "
    "registers with this name server",
    "no broker of topic %(topic)s has a master now; check the brokers",
    "no master broker (cluster %(cluster)s, broker %(broker)s); the name server knows clusters "
    "%(clusters)s and brokers %(brokers)s",
    NO_MEMBER,
    # messages to send
    "topic %(topic)s belongs to the broker; send to a topic of your own",
    "the body for topic %(topic)s has %(size)s bytes, the limit is %(limit)s; send less, or raise "
    "maxMessageSize of the broker and message_bytes_max of the producer",
    "property %(name)s is reserved for the protocol; use another name",
    "property %(name)s is %(value)s; readers drop blank ones, leave it out",
    "property %(name)s holds the character %(sign)s, which separates properties",
    "the properties have %(size)s bytes together, the limit is %(limit)s; put some of it into the "
    "body",
    "message id %(text)s has %(size)s characters; an offset message id has %(short)s, or %(long)s "
    "with an IPv6 host",
    "message id %(text)s is not made of hexadecimal digits only",
    # what a broker was asked to do
    "send to %(topic)s",
    "query %(key)s of %(topic)s",
    "pull queue %(queue)s of %(topic)s on %(broker)s",
    "ask %(client)s",
    "have %(client)s consume %(id)s",
    # rules
    "the resource %(text)s is none; give *, or one of %(kinds)s with a name behind a colon, with * "
    "at its end for all that begin so, as in Topic:orders*",
    "the resource's name has %(size)s characters, the limit is %(limit)s",
    "the source ip %(text)s is none; give an address or a network such as 192.168.0.0/24",
)
# What Python and the system say.
SYSTEM_SENTENCES = (
    "[Errno %(number)s] Connect call failed %(peer)s",
    "[Errno %(number)s] Connection refused",
    "[Errno %(number)s] Connection reset by peer",
    "[Errno %(number)s] Connection timed out",
    "[Errno %(number)s] No route to host",
    "[Errno %(number)s] Network is unreachable",
    "[Errno %(number)s] Name or service not known",
    "[Errno %(number)s] Temporary failure in name resolution",
)
CLAUSES = frozenset({"why", "first"})  # values that are sentences themselves
CHARS_MAX = 4_000  # of a text that is looked at

_NUMBER, _WORD = r"-?\d+", r"\S+"
_VALUES = {
    "address": r"\S+:\d+",
    "seconds": r"-?[\d.e+-]+",
    "first": ".+?",
    "topic": _WORD,
    "client": _WORD,
    "request": _WORD,
    **dict.fromkeys(("times", "count", "code", "size", "limit", "short", "long"), _NUMBER),
    "number": _NUMBER,
}


def pattern_of(text: str) -> tuple[str, dict[str, str]] | None:
    """The pattern of a sentence, and its values; None for one that is not here."""
    if len(text) > CHARS_MAX:
        return None
    for pattern, expression in _expressions():
        found = expression.fullmatch(text)
        if found is not None:
            return pattern, found.groupdict()
    return None


@cache
def _expressions() -> list[tuple[str, re.Pattern[str]]]:
    return [(one, _expression(one)) for one in (*SENTENCES, *SYSTEM_SENTENCES)]


def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"%\((\w+)\)s", pattern)
    made = ""
    seen: set[str] = set()
    for n, part in enumerate(parts):
        if n % 2 == 0:
            made += re.escape(part)
        elif part in seen:
            made += f"(?P={part})"
        else:
            seen.add(part)
            made += f"(?P<{part}>{_VALUES.get(part, '.+')})"
    return re.compile(made, re.DOTALL)
