"""What a visitor may see and do."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol, Self

from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX

PATTERNS_MAX = 100  # of one visitor, for topics and for groups each
PATTERN_CHARS_MAX = 255


class Right(IntEnum):
    """Each right has the ones before it."""

    VIEW = 1
    OPERATE = 2
    ADMINISTER = 3


class Bodies(StrEnum):
    """The part of bodies that a visitor sees: all, names and kinds of JSON fields, or nothing."""

    SHOWN = "shown"
    MASKED = "masked"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names, and beginnings of names."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Read texts such as `orders` and `orders*`; ValueError for one that can't be used."""
        given = list(texts)
        if len(given) > PATTERNS_MAX:
            raise ValueError(f"{len(given)} patterns are given, the limit is {PATTERNS_MAX}")
        for text in given:
            if not text or "*" in text[:-1] or not text.isprintable():
                raise ValueError(
                    f"the pattern is {text[:80]!a}; give a name, with * at its end for all that "
                    "begin so"
                )
            if len(text) > PATTERN_CHARS_MAX:
                raise ValueError(
                    f"a pattern has {len(text)} characters, the limit is {PATTERN_CHARS_MAX}"
                )
        names = frozenset(text for text in given if text[-1] != "*")
        return cls(names, tuple(text[:-1] for text in given if text[-1] == "*"))

    @property
    def are_all(self) -> bool:
        """True if every name fits."""
        return "" in self.prefixes

    def fit(self, name: str) -> bool:
        """True if the name is one of `names` or begins with one of `prefixes`."""
        return name in self.names or name.startswith(self.prefixes)


ALL = Patterns.of(["*"])


class Rules(Protocol):
    """The access list of a user of a cluster; `is_free`: it allows everything."""

    is_free: bool

    def allow(self, right: Right, *, topic: str | None, group: str | None) -> bool:
        """True if the list allows actions of `right` on the topic, the group, or both.

        With neither topic nor group the action is about the whole cluster.
        """


@dataclass(frozen=True, slots=True)
class Visitor:
    """A visitor after the proof of a name. `cluster` is the only cluster for a user of a cluster,
    whose `rules` count besides the right; `address` is where the visitor connects from."""

    name: str
    right: Right
    topics: Patterns = ALL
    groups: Patterns = ALL
    bodies: Bodies = Bodies.SHOWN
    cluster: str | None = None
    rules: Rules | None = field(default=None, repr=False, compare=False)
    address: str = ""

    @property
    def is_limited(self) -> bool:
        """True if the visitor may not see all topics and groups."""
        if self.rules is not None and not self.rules.is_free:
            return True
        return not (self.topics.are_all and self.groups.are_all)

    def may(
        self,
        right: Right,
        *,
        topic: str | None = None,
        group: str | None = None,
        cluster: str | None = None,
    ) -> bool:
        """True if the visitor may do actions of `right` on the topic, the group, or both.

        A retry or dead letter topic counts as its group. With neither topic nor group the action is
        about a whole cluster: a limited visitor may only view that.
        """
        if right > self.right or (cluster is not None and self.cluster not in (None, cluster)):
            return False
        if topic is not None:
            for prefix in (RETRY_PREFIX, DLQ_PREFIX):
                if topic.startswith(prefix):
                    rest = topic.removeprefix(prefix)
                    if not self.may(right, group=rest):
                        return False
                    topic = None
                    if group is None:
                        return True
                    break
        if self.rules is not None:
            return self.rules.allow(right, topic=topic, group=group)
        if topic is None and group is None:
            return right == Right.VIEW or not self.is_limited
        return (topic is None or self.topics.fit(topic)) and (
            group is None or self.groups.fit(group)
        )
