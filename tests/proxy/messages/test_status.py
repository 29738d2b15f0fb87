"""Codes: those of the definitions, and what refusals become."""

import pytest
from aerobee.client.errors import BrokerError, NoAnswerError, NoRouteError, UnreachableError
from aerobee.protocol import codes
from aerobee.proxy.messages import definitions
from aerobee.proxy.messages.status import Code, of_code, of_error, shared


def test_the_codes_are_those_of_the_definitions() -> None:
    assert {code.name: code.value for code in Code} == definitions.enum("Code")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (BrokerError(codes.SYSTEM_BUSY, "r", "a"), Code.TOO_MANY_REQUESTS),
        (BrokerError(codes.REQUEST_CODE_NOT_SUPPORTED, "r", "a"), Code.NOT_IMPLEMENTED),
        (
            BrokerError(codes.SUBSCRIPTION_GROUP_NOT_EXIST, "r", "a"),
            Code.CONSUMER_GROUP_NOT_FOUND,
        ),
        (BrokerError(codes.TOPIC_NOT_EXIST, "r", "a"), Code.TOPIC_NOT_FOUND),
        (BrokerError(codes.SYSTEM_ERROR, "r", "a"), Code.INTERNAL_SERVER_ERROR),
        (NoRouteError("r"), Code.TOPIC_NOT_FOUND),
        (NoAnswerError("r"), Code.PROXY_TIMEOUT),
        (UnreachableError("r"), Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_a_refusal_becomes_the_nearest_code_and_keeps_its_remark(
    wrong: Exception, code: Code
) -> None:
    found = of_error(wrong)
    assert (found.code, found.message) == (code, "r")


def test_the_status_over_entries_is_the_shared_one_or_says_that_they_differ() -> None:
    ok, bad = of_code(Code.OK), of_code(Code.FORBIDDEN)
    assert shared([ok, ok], "none").code == Code.OK
    assert shared([ok, bad], "none").code == Code.MULTIPLE_RESULTS
    assert (shared([], "none").code, shared([], "none").message) == (50001, "none")
