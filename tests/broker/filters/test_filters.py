"""Filters of groups: the file as Java writes it, versions, expiry, faulty expressions."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.filters import filters as filters_module
from aerobee.broker.filters.filters import Filters
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol import codes
from aerobee.protocol.bodies.subscription import ConsumerFilterData, SubscriptionData, subscription
from aerobee.protocol.errors import Refusal

from ...clocks import Clock

GOLDEN = Path(__file__).parents[2] / "golden" / "consumerFilter.json"
# The settings of a Java ConsumerFilterManager that is created without a broker.
JAVAS = {"expect_consumer_num_use_filter": 64, "max_error_rate_of_bloom_filter": 20}
HOUR_MS = 3_600_000


class Made:
    """A filter table in a folder; each call loads it from the file again."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.path = folder / "consumerFilter.json"
        self.clock = clock

    def __call__(self, **settings: Any) -> Filters:
        config = BrokerConfig(broker_name="b", **({"enable_property_filter": True} | settings))
        filters = Filters(self.path, config, self.clock)
        filters.load()
        return filters


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Made:
    return Made(tmp_path, clock)


def sql(text: str, version: int = 1, topic: str = "T") -> SubscriptionData:
    return subscription(topic, text, "SQL92", version)


def found(filters: Filters, topic: str = "T", group: str = "g") -> ConsumerFilterData:
    data = filters.find(topic, group)
    assert data is not None
    return data


# --- the file -------------------------------------------------------------------------------------


def test_a_file_written_by_java_is_read_and_written_unchanged(make: Made) -> None:
    make.path.write_bytes(GOLDEN.read_bytes())
    filters = make(**JAVAS)
    java = json.loads(GOLDEN.read_text())["filterDataByTopic"]
    for data in java["T"]["groupFilterData"].values():
        del data["dead"]  # Java computes it and ignores it when reading
    # A filter that was live when the file was written counts as dead after loading.
    living = java["T"]["groupFilterData"]["G"]
    assert living["deadTime"] == 0
    living["deadTime"] = max(living["bornTime"], make.clock() - 30_000)
    filters.changed = True
    filters.save()
    assert json.loads(make.path.read_text()) == {"filterDataByTopic": java}


def test_a_filter_persists_over_a_restart(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1", 5)])
    filters.save()
    make.clock.ms += HOUR_MS
    filters = make()
    assert found(filters).is_dead
    assert found(filters).dead_time == make.clock() - 30_000
    filters.register("g", [sql("a = 1", 5)])
    assert not found(filters).is_dead
    matches = filters.registered(sql("a = 1", 5), "g", 5)
    assert callable(matches)
    assert matches({"a": "1"})


def test_a_file_with_other_bloom_filter_settings_is_ignored_as_in_java(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1")])
    filters.save()
    assert make(max_error_rate_of_bloom_filter=5).find("T", "g") is None
    assert make().find("T", "g") is not None


def test_nothing_is_written_when_nothing_changed(make: Made) -> None:
    filters = make()
    filters.register("g", [subscription("T", "a || b")])
    assert filters.unsaved() is None
    filters.register("g", [sql("a = 1")])
    assert filters.unsaved() is not None
    filters.register("g", [sql("a = 1")])
    assert filters.unsaved() is None


def test_without_enable_property_filter_no_filter_is_registered(make: Made) -> None:
    filters = make(enable_property_filter=False)
    filters.register("g", [sql("a = 1")])
    assert filters.find("T", "g") is None


# --- versions and expiry --------------------------------------------------------------------------


def test_only_a_later_version_replaces_a_filter(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1", 5)])
    first_born = found(filters).born_time
    make.clock.ms += 10
    filters.register("g", [sql("a = 2", 4)])
    filters.register("g", [sql("a = 2", 5)])
    assert (found(filters).expression, found(filters).client_version) == ("a = 1", 5)
    filters.register("g", [sql("a = 1", 6)])
    assert (found(filters).born_time, found(filters).client_version) == (first_born, 6)
    filters.register("g", [sql("a = 2", 7)])
    assert (found(filters).expression, found(filters).born_time) == ("a = 2", first_born + 10)


def test_a_filter_missing_in_a_heartbeat_is_dead_until_it_is_named_again(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1"), sql("b = 1", topic="U")])
    filters.register("other", [sql("a = 1")])
    filters.register("g", [sql("b = 1", topic="U")])
    assert found(filters).is_dead
    assert not found(filters, "U").is_dead
    assert not found(filters, group="other").is_dead
    filters.register("g", [sql("a = 1"), sql("b = 1", topic="U")])
    assert not found(filters).is_dead


def test_a_dead_filter_is_removed_after_a_day(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1")])
    filters.register("stays", [sql("a = 1")])
    filters.unregister("g")
    for passed_ms, there in ((24 * HOUR_MS - 1, True), (1, False)):
        make.clock.ms += passed_ms
        filters.clean(make.clock())
        assert (filters.find("T", "g") is not None) is there
    assert filters.find("T", "stays") is not None
    filters.unregister("g")  # a filter that is gone is no error


def test_a_filter_over_the_limit_is_not_registered(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "FILTERS_MAX", 1)
    filters = make()
    filters.register("g", [sql("a = 1")])
    filters.register("h", [sql("a = 1")])
    filters.register("g", [sql("a = 2", 2)])
    assert filters.find("T", "h") is None
    assert found(filters).expression == "a = 2"


def test_the_total_length_of_expressions_is_limited_and_dead_filters_make_room(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "EXPRESSIONS_CHARS_MAX", 20)
    filters = make()
    filters.register("g", [sql("a = 1 OR b = 2")])  # 14 characters
    filters.register("h", [sql("c = 3")])
    filters.register("i", [sql("d = 4")])
    assert filters.find("T", "i") is None
    with refused(
        codes.FILTER_DATA_NOT_EXIST, "2 filters with 19 characters are kept, one more of 5"
    ):
        filters.registered(sql("d = 4"), "i", 1)
    filters.register("h", [sql("c = 33", 2)])  # an update within the limit is accepted
    assert found(filters, group="h").expression == "c = 33"
    filters.register("h", [sql("c = 333333", 3)])
    assert filters.find("T", "h") is None  # beyond the limit the filter is removed
    filters.unregister("g")
    filters.register("i", [sql("d = 4 OR e = 5", 2)])
    assert found(filters, group="i").expression == "d = 4 OR e = 5"
    assert filters.find("T", "g") is None


# --- filters of pull requests ---------------------------------------------------------------------


def refused(code: int, says: str) -> AbstractContextManager[pytest.ExceptionInfo[Refusal]]:
    return pytest.raises(Refusal, match=says, check=lambda wrong: wrong.code == code)


def test_an_invalid_new_expression_removes_the_previous_filter(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1", 1)])
    filters.register("g", [sql("a = ", 2)])
    assert filters.find("T", "g") is None
    with refused(codes.FILTER_DATA_NOT_EXIST, "wrong at character 5"):
        filters.registered(sql("a = ", 2), "g", 2)


def test_a_pull_with_a_newer_version_than_the_filter_is_refused(make: Made) -> None:
    filters = make()
    filters.register("g", [sql("a = 1", 5)])
    assert callable(filters.registered(sql("a = 1", 5), "g", 4))
    with refused(codes.FILTER_DATA_NOT_LATEST, "5 is known, 6 was named"):
        filters.registered(sql("a = 1", 6), "g", 6)


def test_an_unknown_filter_is_registered_by_the_pull_that_names_it(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = make()
    matches = filters.registered(sql("a = 1", 3), "g", 3)
    assert callable(matches)
    assert matches({"a": "1"})
    assert (found(filters).client_version, found(filters).is_dead) == (3, False)
    assert filters.unsaved() is not None
    monkeypatch.setattr(filters_module, "FILTERS_MAX", 1)
    with refused(codes.FILTER_DATA_NOT_EXIST, "one more of 5 would be over the limit"):
        filters.registered(sql("a = 1"), "other", 0)


@pytest.mark.parametrize(
    ("text", "kind", "code", "says"),
    [
        ("a = ", "SQL92", codes.SUBSCRIPTION_PARSE_FAILED, "wrong at character 5"),
        ("a = 1", "XPATH", codes.SUBSCRIPTION_PARSE_FAILED, "'XPATH' is not known"),
        ("", "SQL92", codes.SUBSCRIPTION_PARSE_FAILED, "is empty"),
        (None, "SQL92", codes.SUBSCRIPTION_PARSE_FAILED, "is empty"),
        (" || ", "TAG", codes.SUBSCRIPTION_PARSE_FAILED, "has no tag"),
        ("a = '" + "x" * 33_000 + "'", "SQL92", codes.SUBSCRIPTION_PARSE_FAILED, "limit is 32768"),
        ("NOT " * 70 + "a = 1", "SQL92", codes.SUBSCRIPTION_PARSE_FAILED, "deeper than 64"),
    ],
)
def test_an_invalid_expression_in_a_pull_is_refused_with_the_reason(
    make: Made, text: str | None, kind: str, code: int, says: str
) -> None:
    with refused(code, says):
        make().stated("T", text, kind)


def test_a_pull_may_carry_an_expression_of_each_type(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = make()
    for _ in range(2):
        assert filters.stated("T", "a || b", "TAG") == frozenset({97, 98})
        assert filters.stated("T", "*", None) is None
        assert filters.stated("T", None, "") is None
        matches = filters.stated("T", "a > 5", "SQL92")
        assert callable(matches)
        assert matches({"a": "6"})
        monkeypatch.setattr(filters_module, "STATED_MAX", 1)  # the second round exceeds the cache


def test_sql92_is_refused_if_the_property_filter_is_disabled(make: Made) -> None:
    filters = make(enable_property_filter=False)
    asks: tuple[Callable[[], object], ...] = (
        lambda: filters.stated("T", "a = 1", "SQL92"),
        lambda: filters.registered(sql("a = 1"), "g", 0),
        lambda: filters.check(sql("a = 1")),
    )
    for ask in asks:
        with refused(codes.SYSTEM_ERROR, "filter message by SQL92.*enablePropertyFilter=true"):
            ask()
    filters.check(subscription("T", "a"))


def test_a_retry_is_filtered_by_its_original_topic_if_that_is_enabled(make: Made) -> None:
    retry = "%RETRY%g"
    again = {"RETRY_TOPIC": "T", "a": "1"}
    for on, by_first, by_own in ((True, True, False), (False, False, True)):
        filters = make(filter_support_retry=on)
        filters.register("g", [sql("a = 1")])
        matches = filters.stated(retry, "b = 1", "SQL92")
        assert callable(matches)
        assert matches(again) is by_first
        assert matches(again | {"a": "2"}) is False
        assert matches({"b": "1", "RETRY_TOPIC": "T"}) is by_own
        # If the group has no expression for the original topic, all its retries match.
        assert matches({"RETRY_TOPIC": "U"}) is by_first
