"""Errors that a user can mend hide the traceback of Spark's Python process; bugs show it."""

import json

import pytest
from aerobee.client.errors import NoRouteError
from aerobee.lake.rows.ranges import DataLossError
from aerobee.spark.errors import HIDE, readable_errors
from aerobee.store.base.errors import StoreError


def fail(wrong: Exception) -> None:
    with pytest.raises(type(wrong)), readable_errors():
        raise wrong


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """That of a Python process of Spark's."""
    environ = {"PYTHON_WORKER_FACTORY_SECRET": "s"}
    monkeypatch.setattr("aerobee.spark.errors.os.environ", environ)
    return environ


@pytest.mark.parametrize(
    "wrong",
    [NoRouteError("a"), StoreError("b"), DataLossError("c"), ValueError("option d")],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_a_user_can_mend_hides_the_traceback(
    wrong: Exception, environment: dict[str, str]
) -> None:
    fail(wrong)
    assert environment[HIDE] == "1"


@pytest.mark.parametrize(
    "bug",
    [KeyError("a"), AssertionError(), json.JSONDecodeError("b", "", 0)],
    ids=lambda bug: type(bug).__name__,
)
def test_a_bug_shows_it(bug: Exception, environment: dict[str, str]) -> None:
    fail(bug)
    assert HIDE not in environment


def test_elsewhere_than_in_a_process_of_sparks_nothing_is_set(environment: dict[str, str]) -> None:
    environment.clear()
    fail(NoRouteError("a"))
    assert environment == {}
