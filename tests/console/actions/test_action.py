"""Fields, fingerprints, and what becomes of changes."""

from collections.abc import Awaitable, Callable

import pytest
from aerobee.client.errors import BrokerError, NoAnswerError, UnreachableError
from aerobee.console.actions.action import Action, Change, Field, Plan, State, Unfit, apply


async def nothing() -> None:
    """A change that is done."""


def failing(wrong: Exception) -> Callable[[], Awaitable[None]]:
    async def do() -> None:
        raise wrong

    return do


async def test_each_change_has_its_own_outcome_and_a_later_phase_waits_for_all() -> None:
    refused = BrokerError(16, "not you", "a:1", "this")
    changes = [
        Change("one", "", "", nothing),
        Change("two", "", "", failing(refused)),
        Change("three", "", "", failing(NoAnswerError("no answer"))),
        Change("four", "", "", failing(UnreachableError("lost"))),
        Change("five", "", "", failing(UnreachableError("no connection", is_unsent=True))),
        Change("six", "", "", nothing, phase=1),
    ]
    found = await apply(changes)
    assert [one.state for one in found] == [
        State.DONE,
        State.REFUSED,
        State.UNKNOWN,
        State.UNKNOWN,
        State.REFUSED,
        State.NOT_TRIED,
    ]
    assert "not you" in found[1].remark
    assert "look, it is not repeated by itself" in found[2].remark
    assert "two was not done" in found[5].remark


def test_a_fingerprint_is_of_what_was_shown() -> None:
    def of(before: str, bound: str | None = None) -> str:
        return Plan([Change("one", before, "after", nothing, bound=bound)]).fingerprint

    assert of("3") == of("3")
    assert of("3") != of("4")
    assert of("3", "members") == of("4", "members")
    assert Plan(refusals=["no"]).fingerprint != Plan().fingerprint


async def _plan(*_: object) -> Plan:
    return Plan()


def test_the_audit_gets_no_secret() -> None:
    fields = (Field("user", "User"), Field("pw", "Password", "secret"), Field("t", "T", "long"))
    action = Action("x", "X", fields, _plan, topics=("user",))
    values = action.read({"user": "ann", "pw": "hush", "t": "abc"})
    assert action.details(values) == {"user": "ann", "pw": "(secret)", "t": "(3 characters)"}
    assert action.target(values) == "ann"


@pytest.mark.parametrize(
    ("field", "text", "what"),
    [
        (Field("n", "N", "number", least=1, most=5), "6", "N is 6; give 1 to 5"),
        (Field("n", "N", "number", least=1, most=5), "x", "give a whole number"),
        (Field("n", "N", "number", least=1, most=5), "9" * 30, "give 1 to 5"),
        (Field("n", "N", chars_max=3), "abcd", "4 characters, the limit is 3"),
        (Field("n", "N", "choice", choices=("a",)), "b", "give one of a"),
        (Field("n", "N", is_required=True), " ", "N is missing"),
    ],
)
def test_a_field_refuses_what_it_cannot_be(field: Field, text: str, what: str) -> None:
    with pytest.raises(Unfit, match=what):
        field.read(text)
