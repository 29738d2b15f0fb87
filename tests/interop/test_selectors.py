"""Message selectors find the same messages with our broker as with the real one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import Cluster

from .programs import SECONDS, Java, Mqadmin

TOPIC = "Selected"
COUNT = 150
# Each with how many of the messages it is true of, where that is easy to say.
RIGHT = {
    "TRUE": COUNT,
    "FALSE": 0,
    "a = 3": 21,
    "a <> 3": 129,
    "a > 5": 21,
    "3 <= a": None,
    "a BETWEEN 2 AND 4": None,
    "a NOT BETWEEN 2 AND 4": None,
    "a IN ('1', '6')": None,
    "a NOT IN ('1', '6')": None,
    "price >= 30.5": None,
    "price = 15.0": 1,
    "a > 2.5": None,
    "big > 3000000100": 49,
    "big > 3": 0,  # 3 is an Integer there, which the property is not
    "flag = TRUE": 75,
    "flag <> TRUE": 75,
    "flag": 0,
    "city = 'it''s'": 50,
    "city = 'Köln'": 50,
    "city CONTAINS 'zh'": 50,
    "city STARTSWITH 'Hang' OR city ENDSWITH 'ln'": 100,
    "city NOT CONTAINS 'zh'": 100,
    "rare IS NULL": 120,
    "rare IS NOT NULL AND a < 3": None,
    "NOT (rare = 'yes')": 0,  # unknown for those without it
    "rare = 'yes' OR flag = TRUE": 90,
    "TAGS = 'Aa'": 50,
    "TAGS IN ('Aa', 'other') AND KEYS >= 5": 0,
    "none = 1": 0,
    "a = 'x' OR a = 3": None,
    "city LIKE 'H%'": 0,
    "-a < -4": None,
}
WRONG = ("a = ", "a == 3", "a > 'x'", "a BETWEEN 4 AND 2", "(a = 3", "a = 99999999999999999999")
TAGS = {"Aa": 50, "Aa || other": 100, "BB||none": 50, "*": COUNT}


class Sides(NamedTuple):
    """The program that reads, beside ours and beside the real one."""

    ours: Reporter
    real: Reporter

    def __call__(self, *words: object) -> tuple[dict[str, object], dict[str, object]]:
        """The answers of both to one order."""
        order = "\t".join(map(str, words))
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda side: side.ask(order, "selected", SECONDS), self))
        for one in found:
            one.pop("event")
        return found[0], found[1]


@pytest.fixture(scope="module")
def sides(both: tuple[Cluster, Cluster], java: Java, mqadmin: Mqadmin) -> Sides:
    ours, real = both
    return Sides(reader(ours, java, mqadmin), reader(real, java, mqadmin))


def reader(cluster: Cluster, java: Java, mqadmin: Mqadmin) -> Reporter:
    mqadmin.create_topic(cluster, TOPIC, 4)
    program = java.start("Select", namesrv=cluster.namesrv, topic=TOPIC, count=COUNT)
    program.wait_event("started", SECONDS)
    return program


def test_a_pull_by_an_expression_finds_what_the_real_broker_finds(sides: Sides) -> None:
    for text, count in RIGHT.items():
        ours, real = sides("pull", "SQL92", text)
        assert real["error"] == ""
        assert ours == real, text
        keys = ours["keys"]
        assert isinstance(keys, list)
        if count is not None:
            assert len(keys) == count, text


def test_a_pull_by_tags_finds_what_the_real_broker_finds(sides: Sides) -> None:
    for text, count in TAGS.items():
        ours, real = sides("pull", "TAG", text)
        assert ours == real, text
        assert len(list(ours["keys"])) == count, text  # type: ignore[call-overload]


@pytest.mark.parametrize("way", ["push", "lite"])
@pytest.mark.parametrize(
    ("kind", "text", "count"),
    [("SQL92", "a BETWEEN 2 AND 4 AND rare IS NULL", 52), ("TAG", "Aa || other", 100)],
)
def test_a_consumer_with_a_selector_gets_what_it_gets_from_the_real_broker(
    sides: Sides, way: str, kind: str, text: str, count: int
) -> None:
    ours, real = sides(way, kind, text, f"{way}-{kind}", count)
    assert ours == real
    assert len(list(ours["keys"])) == count  # type: ignore[call-overload]


def test_a_faulty_expression_stops_a_consumer_at_its_start_and_ours_says_where_it_is_wrong(
    sides: Sides,
) -> None:
    ours, real = sides("push", "SQL92", "a = ", "Faulty", 1)
    for one in (ours, real):
        assert "CODE: 23" in str(one["error"])
    assert "wrong at character 5" in str(ours["error"])


def test_a_pull_with_a_faulty_expression_is_refused_where_the_real_broker_gives_all(
    sides: Sides,
) -> None:
    for text in WRONG:
        ours, real = sides("pull", "SQL92", text)
        assert "CODE: 23" in str(ours["error"]), text
        assert "wrong at character" in str(ours["error"]), text
        assert len(list(real["keys"])) == COUNT, text  # type: ignore[call-overload]
