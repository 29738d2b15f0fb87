"""All short histories of three brokers that apply for their ids, with the controller's own rules.

The controller may start again at any moment: what it has answered is in its journal. A broker
writes its application to its disk before it sends it, as `broker.controlled` does.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from aerobee.controller import replicas, rules
from aerobee.controller.live import LiveBrokers
from aerobee.controller.replicas import Groups, IdApplied
from aerobee.protocol import codes
from aerobee.protocol.headers import controller as headers

NAME, CLUSTER = "b", "c"


class Applicant(NamedTuple):
    """One broker: what the controller named, what it has applied for, and what it is."""

    named: int | None = None
    application: tuple[int, str] | None = None  # id and check code
    own: int | None = None


class State(NamedTuple):
    """All brokers, and the ids that were given, in order."""

    brokers: tuple[Applicant, ...] = (Applicant(),) * 3
    given: tuple[IdApplied, ...] = ()
    applications: int = 0  # each has a check code of its own


class GivenTwice(AssertionError):
    """Two brokers have the same id."""


def explore(events: int) -> int:
    """Try all histories of up to this many events; returns the number of states.

    GivenTwice, with the history, when two brokers are the same.
    """
    before: dict[State, tuple[str, ...]] = {State(): ()}
    newest = [State()]
    for _ in range(events):
        reached = []
        for state in newest:
            for event, after in _next_steps(state):
                history = (*before[state], event)
                ids = [each.own for each in after.brokers if each.own is not None]
                if len(set(ids)) < len(ids):
                    raise GivenTwice(f"the brokers are {ids}\n" + "\n".join(history))
                if after not in before:
                    before[after] = history
                    reached.append(after)
        newest = reached
    return len(before)


def _next_steps(state: State) -> Iterator[tuple[str, State]]:
    for one, broker in enumerate(state.brokers):
        if broker.own is not None:
            continue
        if broker.application is None and broker.named is None:
            header = headers.GetNextBrokerId(NAME, CLUSTER)
            found: Any = rules.next_id(_groups(state), header).header
            named = broker._replace(named=found.next_broker_id)
            yield f"{one} is told the id {named.named}", _put(state, one, named)
        elif broker.application is None:
            assert broker.named is not None
            application = broker.named, f"{one}:10911;{state.applications}"
            after = _put(state, one, Applicant(application=application))
            yield (
                f"{one} writes its application",
                after._replace(applications=state.applications + 1),
            )
        else:
            after, is_taken = _applied(state, *broker.application)
            yield f"{one} applies, the answer is lost", after
            own = Applicant(own=broker.application[0]) if is_taken else Applicant()
            yield f"{one} applies, and is answered", _put(after, one, own)


def _applied(state: State, wanted: int, check_code: str) -> tuple[State, bool]:
    groups = _groups(state)
    header = headers.ApplyBrokerId(NAME, wanted, check_code, CLUSTER)
    decision = rules.apply_id(groups, LiveBrokers(lambda: 0), header)
    given = [each for each in decision.events if isinstance(each, IdApplied)]
    return state._replace(given=(*state.given, *given)), decision.code == codes.SUCCESS


def _groups(state: State) -> Groups:
    groups: Groups = {}
    for event in state.given:
        replicas.apply(groups, event)
    return groups


def _put(state: State, one: int, broker: Applicant) -> State:
    brokers = state.brokers
    return state._replace(brokers=(*brokers[:one], broker, *brokers[one + 1 :]))
