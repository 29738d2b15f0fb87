"""What an access list says: resources, entries, and which of them decides about a request.

Values and pure functions. The names of kinds, patterns, actions and decisions are RocketMQ's.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .. import codes
from ..bodies.access import PolicyEntryInfo
from ..errors import Refusal
from ..names import STORED_TOPIC_CHARS_MAX

ANY, CLUSTER, NAMESPACE, TOPIC, GROUP = "Any", "Cluster", "Namespace", "Topic", "Group"
LITERAL, PREFIXED, WHOLE = range(3)  # patterns, the one that decides first first
ALL = "All"
PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = (
    "Pub",
    "Sub",
    "Create",
    "Update",
    "Delete",
    "Get",
    "List",
)
ALLOW, DENY = "Allow", "Deny"
USER_PREFIX = "User:"  # of the subject of an access list
CUSTOM, DEFAULT = "Custom", "Default"  # types of policies, in the order in which they decide

NAME_CHARS_MAX = STORED_TOPIC_CHARS_MAX  # of a resource
ACTIONS_MAX = 32  # of one entry, as given
SOURCES_MAX = 100  # addresses and networks of one entry

_KINDS = {kind.lower(): kind for kind in (CLUSTER, NAMESPACE, TOPIC, GROUP)}
_ACTIONS = {action.lower(): action for action in (ALL, PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST)}
_DECISIONS = {decision.lower(): decision for decision in (ALLOW, DENY)}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Need(NamedTuple):
    """A needed permission: one of the actions, on the resource of this kind and name."""

    kind: str
    name: str
    actions: tuple[str, ...]


class Resource(NamedTuple):
    """The resources that an entry covers: `*`, `Topic:*`, `Topic:orders*` or `Topic:orders`."""

    kind: str
    pattern: int
    name: str

    @property
    def key(self) -> str:
        """The text that it was read from."""
        if self.kind == ANY:
            return "*"
        return f"{self.kind}:{self.name}{'' if self.pattern == LITERAL else '*'}"

    def covers(self, kind: str, name: str) -> bool:
        if self.kind != ANY and self.kind != kind:
            return False
        if self.pattern == LITERAL:
            return self.name == name
        return name.startswith(self.name)


class PolicyEntry(NamedTuple):
    """Allows or denies actions from some networks (None: from anywhere)."""

    resource: Resource
    actions: tuple[str, ...]
    sources: tuple[str, ...] | None
    networks: tuple[Network, ...] | None
    decision: str

    def to_info(self) -> PolicyEntryInfo:
        sources = None if self.sources is None else list(self.sources)
        return PolicyEntryInfo(self.resource.key, list(self.actions), sources, self.decision)

    def fits(self, need: Need, address: Address | None) -> bool:
        """True if the entry covers this action from this address (None: the address is unknown)."""
        if not self.resource.covers(need.kind, need.name):
            return False
        if ALL not in self.actions and not any(one in self.actions for one in need.actions):
            return False
        if self.networks is None:
            return True
        return address is not None and any(address in network for network in self.networks)


def resource_of(text: str | None) -> Resource:
    """The resource that a text names; Refusal for one that names none."""
    kind, colon, name = (text or "").partition(":")
    if text == "*" or (text or "").lower() == "any:*":  # RocketMQ's type Any, spelt out
        return Resource(ANY, WHOLE, "")
    known = _KINDS.get(kind.lower())
    pattern = LITERAL
    if name.endswith("*"):
        name = name[:-1]
        pattern = PREFIXED if name else WHOLE
    is_named = pattern == WHOLE or name
    if known is None or not colon or not is_named or "*" in name or not name.isprintable():
        raise Refusal(
            codes.NO_PERMISSION,
            f"the resource {(text or '')[:80]!a} is none; give *, or one of "
            f"{', '.join(_KINDS.values())} with a name behind a colon, with * at its end for all "
            "that begin so, as in Topic:orders*",
        )
    if len(name) > NAME_CHARS_MAX:
        raise Refusal(
            codes.NO_PERMISSION,
            f"the resource's name has {len(name)} characters, the limit is {NAME_CHARS_MAX}",
        )
    return Resource(known, pattern, name)


def entry_of(info: PolicyEntryInfo) -> PolicyEntry:
    """The entry in the form that is kept; Refusal naming its fault."""
    resource = resource_of(info.resource)
    given = info.actions or []
    if not given or len(given) > ACTIONS_MAX:
        raise Refusal(
            codes.NO_PERMISSION,
            f"the entry about {resource.key} has {len(given)} actions; give 1 to {ACTIONS_MAX}",
        )
    actions = dict.fromkeys(_known("action", action, _ACTIONS) for action in given)
    sources = tuple(info.source_ips) if info.source_ips else None
    if sources is not None and len(sources) > SOURCES_MAX:
        raise Refusal(
            codes.NO_PERMISSION,
            f"the entry about {resource.key} has {len(sources)} source ips, the limit is "
            f"{SOURCES_MAX}; give networks",
        )
    networks = None if sources is None else tuple(map(_network, sources))
    decision = _known("decision", info.decision or "", _DECISIONS)
    return PolicyEntry(resource, tuple(actions), sources, networks, decision)


def deciding(
    entries: Iterable[PolicyEntry], need: Need, address: Address | None
) -> PolicyEntry | None:
    """The deciding entry: the most specific one that matches, None if none does.

    One for a kind goes before `*`, a whole name before a prefix, a longer prefix before a shorter,
    and at last Deny before Allow. (RocketMQ's comparison means the same but contradicts itself for
    some pairs, so that there the order of the list decides.)
    """
    fitting = (entry for entry in entries if entry.fits(need, address))
    return min(fitting, key=_rank, default=None)


def denial(policies: Mapping[str, Iterable[PolicyEntry]], need: Need, ip: str) -> str | None:
    """The reason why this may not be done from that address; None if it may.

    `policies` are the entries of a user by type: Custom ones decide first, then Default ones.
    """
    address = address_of(ip)
    for kind in (CUSTOM, DEFAULT):
        entry = deciding(policies.get(kind, ()), need, address)
        if entry is not None:
            return "the decision is deny." if entry.decision == DENY else None
    return "no matched policies."


def address_of(ip: str) -> Address | None:
    """The address that a text is; one of IPv4 also when it is written as one of IPv6."""
    try:
        found = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    resource = entry.resource
    return resource.kind == ANY, resource.pattern, -len(resource.name), entry.decision == ALLOW


def _known(what: str, given: str, known: dict[str, str]) -> str:
    found = known.get(given.lower())
    if found is None:
        raise Refusal(
            codes.NO_PERMISSION,
            f"the {what} {given[:40]!a} is none; give one of {', '.join(known.values())}",
        )
    return found


def _network(text: str) -> Network:
    bits = text.partition("/")[2]
    try:
        if "/" in text and not (bits.isascii() and bits.isdigit()):
            raise ValueError
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise Refusal(
            codes.NO_PERMISSION,
            f"the source ip {text[:50]!a} is none; give an address or a network such as "
            "192.168.0.0/24",
        ) from None
