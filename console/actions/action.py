"""An action: its fields, what it would change, and what it changed.

A plan names each change by its place (broker, queue) with the state before and after, and a
fingerprint of what it showed. `confirmed` plans again and refuses (`Changed`) when the fingerprint
differs; `apply` makes the changes. A change is one request, sent once: done, refused with the
broker's remark, or unknown when no answer came. Changes of a later phase are not tried unless all
of the phases before are done.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from ...client.errors import AerobeeError, BrokerError, NoAnswerError, UnreachableError
from ..access.rights import Right
from ..clusters.clusters import Watched
from ..texts import Text, TextError, joined, text_of
from ..times import BadTime, time_ms

AT_ONCE = 8  # changes in the making
CHANGES_MAX = 5_000  # of one plan
CHARS_MAX = 4_096  # of a field, if it does not say otherwise

Values = Mapping[str, Any]  # by the name of the field
Pins = dict[str, Any]  # what a plan keeps for its second run, such as the time of the first


class Unfit(TextError):
    """What can't be used: the name of its field, where it is one, its value, and what to give."""

    field: str | None = None

    def at(self, field: str) -> Self:
        """The error, of this field."""
        self.field = field
        return self


class Changed(TextError):
    """The cluster is not as the preview showed it."""

    status = 409


class State(StrEnum):
    """The result of a change."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a form. `kind` is text, long, secret, number, flag, choice or time. `names` says
    what it names: topics, groups or brokers. `only` is the field of a choice, and those values of
    it that this one is for."""

    name: str
    label: str
    kind: str = "text"
    is_required: bool = False
    default: str = ""
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    chars_max: int = CHARS_MAX
    note: str = ""
    names: str = ""
    only: tuple[str, tuple[str, ...]] | None = None

    def read(self, text: str) -> Any:
        """The value of a typed text; None without one. Unfit."""
        if self.kind not in ("secret", "long"):
            text = text.strip()
        if len(text) > self.chars_max:
            raise Unfit(
                "%(label)s has %(count)s characters, the limit is %(chars_max)s; shorten it",
                label=Text(self.label),
                count=f"{len(text):,}",
                chars_max=f"{self.chars_max:,}",
            )
        if self.kind == "flag":
            return text == "1"
        if not text:
            if self.is_required:
                raise Unfit("%(label)s is missing; fill it in", label=Text(self.label))
            return None
        if self.kind == "number":
            return self._number(text)
        if self.kind == "choice" and text not in self.choices:
            raise Unfit(
                "%(label)s is %(text)s; give one of %(choices)s",
                label=Text(self.label),
                text=f"{text[:80]!r}",
                choices=joined(", ", map(Text, self.choices)),
            )
        if self.kind == "time":
            try:
                return time_ms(text)
            except BadTime as wrong:
                raise Unfit("%(label)s: %(wrong)s", label=Text(self.label), wrong=wrong) from None
        return text

    def written(self, value: Any) -> str:
        """The text of a form for a value that was read."""
        if self.kind == "flag":
            return "1" if value else ""
        return "" if value is None else str(value)

    def _number(self, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            raise Unfit(
                "%(label)s is %(text)s; give a whole number",
                label=Text(self.label),
                text=f"{text[:80]!r}",
            )
        if not self.least <= int(text) <= self.most:
            raise Unfit(
                "%(label)s is %(text)s; give %(least)s to %(most)s",
                label=Text(self.label),
                text=text[:80],
                least=self.least,
                most=self.most,
            )
        return int(text)


@dataclass(frozen=True, slots=True)
class Change:
    """One request that changes one place. `do` may return a remark. `bound` is what of the state
    the confirmation is bound to: what it was before, if not given. `note` is for people."""

    place: str
    before: str
    after: str
    do: Callable[[], Awaitable[str | None]]
    phase: int = 0
    bound: str | None = None
    note: str = ""


@dataclass(slots=True)
class Plan:
    """The changes that an action would make, which `sentence` sums up. `notes` are for people,
    `refusals` say why the action can't be done. `topics` are the topics to be written besides the
    ones that fields name."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    pins: Pins = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    sentence: str | None = None

    def note(self, pattern: str, /, **values: object) -> None:
        """Add a note for people."""
        self.notes.append(Text(pattern, **values))

    def count_at_least(self) -> None:
        """Say in the sentence that brokers are missing from what it counts."""
        if self.sentence is not None:
            self.sentence = Text("%(sentence)s, at least", sentence=self.sentence)

    def refuse(self, pattern: str, /, **values: object) -> None:
        """Add a reason why the action can't be done."""
        self.refusals.append(Text(pattern, **values))

    @property
    def fingerprint(self) -> str:
        """A digest of what the plan binds its confirmation to."""
        rows = [
            [one.place, one.before if one.bound is None else one.bound, one.after]
            for one in self.changes
        ]
        return hashlib.sha256(json.dumps([rows, self.refusals]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one change; `remark` is the broker's, or says what to check."""

    place: str
    after: str
    state: State
    remark: str = ""


Planner = Callable[[Watched, Values, Pins], Awaitable[Plan]]
Prefill = Callable[[Watched, Mapping[str, str]], Awaitable[dict[str, str]]]
Start = Callable[[Watched, Values, Plan], Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An action. `topics` and `groups` are the fields that name what it touches; `typed` is the
    field whose value must be typed again: of what touches a topic, a group, a broker or many at
    once; with `typed_if` only where that is true of the values. `loses`: it takes away something
    else. `prefill` gives a form the present values. `start` begins long work that goes on behind
    the answer, and returns it."""

    name: str
    title: str
    fields: tuple[Field, ...]
    plan: Planner
    right: Right = Right.OPERATE
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    typed: str | None = None
    typed_if: Callable[[Values], bool] | None = None
    loses: bool = False
    prefill: Prefill | None = None
    start: Start | None = None

    def wanted(self, values: Values) -> str | None:
        """What must be typed to confirm these values, None for nothing."""
        if self.typed is None or (self.typed_if is not None and not self.typed_if(values)):
            return None
        return str(values[self.typed])

    def read(self, form: Mapping[str, str]) -> dict[str, Any]:
        """The values of a form; Unfit for the first that can't be used."""
        found = {}
        for one in self.fields:
            try:
                found[one.name] = one.read(form.get(one.name, ""))
            except Unfit as wrong:
                raise wrong.at(one.name) from None
        return found

    def faults(self, form: Mapping[str, str]) -> dict[str, str]:
        """What is wrong with the fields of a form, by name."""
        found = {}
        for one in self.fields:
            try:
                one.read(form.get(one.name, ""))
            except Unfit as wrong:
                found[one.name] = text_of(wrong)
        return found

    def target(self, values: Values) -> str:
        """The names that the action is done to, for the audit."""
        names = self.topics + self.groups
        found = [str(values[name]) for name in names if values.get(name)]
        return ", ".join(found) or self.title

    def details(self, values: Values) -> dict[str, Any]:
        """The values for the audit, without secrets; long ones by their length."""
        found = {}
        for one in self.fields:
            value = values.get(one.name)
            if one.kind == "secret" and value:
                value = "(secret)"
            elif one.kind == "long" and value:
                value = f"({len(value)} characters)"
            if value not in (None, "", False):
                found[one.name] = value
        return found


async def preview(action: Action, watched: Watched, values: Values, pins: Pins) -> Plan:
    """The plan; Unfit when it has too many changes."""
    plan = await action.plan(watched, values, pins)
    if len(plan.changes) > CHANGES_MAX:
        raise Unfit(
            "%(title)s would make %(count)s changes, the limit is %(changes_max)s; do it in parts",
            title=Text(action.title),
            count=f"{len(plan.changes):,}",
            changes_max=f"{CHANGES_MAX:,}",
        )
    return plan


async def confirmed(
    action: Action, watched: Watched, values: Values, pins: Pins, fingerprint: str
) -> Plan:
    """The plan that a preview with this fingerprint showed; Changed when the state is another
    now, Unfit when it was refused."""
    plan = await preview(action, watched, values, pins)
    if plan.fingerprint != fingerprint:
        if plan.refusals:  # there were none: such a preview can't be confirmed
            why = joined("; ", plan.refusals)
            raise Changed("%(why)s; nothing was done: preview it again", why=why)
        raise Changed(
            Text("the cluster has changed since the preview; nothing was done: preview it again")
        )
    if plan.refusals:
        raise Unfit(joined("; ", plan.refusals))
    return plan


async def apply(changes: list[Change]) -> list[Outcome]:
    """Make the changes, phase by phase."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(change: Change) -> Outcome:
        async with room:
            return await do(change)

    found: dict[int, Outcome] = {}
    missed = ""
    for phase in sorted({each.phase for each in changes}):
        numbers = [n for n, each in enumerate(changes) if each.phase == phase]
        if missed:
            for n in numbers:
                why = Text("%(missed)s was not done; look there, and do it again", missed=missed)
                found[n] = Outcome(changes[n].place, changes[n].after, State.NOT_TRIED, why)
            continue
        outcomes = await asyncio.gather(*(one(changes[n]) for n in numbers))
        found.update(zip(numbers, outcomes, strict=True))
        missed = next((each.place for each in outcomes if each.state is not State.DONE), "")
    return [found[n] for n in range(len(changes))]


async def do(change: Change) -> Outcome:
    """Make one change with one request."""
    try:
        remark = await change.do()
        return Outcome(change.place, change.after, State.DONE, remark or "")
    except BrokerError as wrong:
        return Outcome(change.place, change.after, State.REFUSED, text_of(wrong))
    except AerobeeError as wrong:
        state, remark = state_of(wrong)
        return Outcome(change.place, change.after, state, remark)


def state_of(wrong: AerobeeError) -> tuple[State, str]:
    """The state of a change whose request failed, and its text.

    UNKNOWN if the request may have been executed without an answer, else REFUSED.
    """
    is_lost = isinstance(wrong, UnreachableError) and not wrong.is_unsent
    if is_lost or isinstance(wrong, NoAnswerError):
        return State.UNKNOWN, Text(
            "%(wrong)s; it may have been done: look, it is not repeated by itself", wrong=wrong
        )
    return State.REFUSED, text_of(wrong)
