"""Queue selection: round robin, and the same key to the same queue as Java's hash selector."""

import json
from pathlib import Path

import pytest
from aerobee.client.base.message import Message
from aerobee.client.cluster.route import MessageQueue
from aerobee.client.producer.select_queue import RoundRobin, by_hash, by_random

HASHES = json.loads(
    (Path(__file__).parents[2] / "golden" / "hashes.json").read_text(encoding="utf-8")
)
QUEUES = [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)]
MESSAGE = Message("t", b"x")


def test_round_robin_visits_all_queues_in_order() -> None:
    selector = RoundRobin()
    first = selector.next(QUEUES)
    at = QUEUES.index(first)
    assert [selector.next(QUEUES) for _ in range(3)] == [
        QUEUES[(at + step) % 3] for step in (1, 2, 3)
    ]


def test_round_robin_avoids_a_broker_if_there_is_another() -> None:
    selector = RoundRobin()
    assert {selector.next(QUEUES, avoid="a").broker_name for _ in range(6)} == {"b"}
    assert {selector.next(QUEUES[:2], avoid="a").broker_name for _ in range(6)} == {"a"}


@pytest.mark.parametrize("case", [case for case in HASHES if case["kind"] == "tag"])
def test_a_string_key_selects_the_queue_of_javas_hash(case: dict[str, object]) -> None:
    code = int(str(case["java_string_hashCode"]))
    expected = abs(code) % 7  # |code % 7| with Java's remainder
    queues = [MessageQueue("t", "a", at) for at in range(7)]
    assert by_hash(queues, MESSAGE, case["text"]).queue_id == expected


@pytest.mark.parametrize(
    ("value", "hashed"),
    [(5, 5), (-5, -5), (1 << 40, 256), (-(1 << 40), -256), (True, 1231), (False, 1237)],
)
def test_numbers_and_booleans_hash_as_in_java(value: int, hashed: int) -> None:
    queues = [MessageQueue("t", "a", at) for at in range(1000)]
    assert by_hash(queues, MESSAGE, value).queue_id == abs(hashed) % 1000


def test_random_selection_gives_one_of_the_queues() -> None:
    assert {by_random(QUEUES, MESSAGE, None) for _ in range(200)} == set(QUEUES)
