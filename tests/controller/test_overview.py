"""The status page and the metrics of a controller."""

from collections.abc import Iterator
from pathlib import Path

from aerobee.controller.config import ControllerConfig
from aerobee.controller.overview import Overview, families, note, overview
from aerobee.controller.replicas import IdApplied, MasterElected, apply
from aerobee.controller.server import Controller

from ..clocks import Clock


def seen(controller: Controller) -> Overview:
    steps: Iterator[None] = overview(controller)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Overview = end.value
            return found


def test_replicas_sets_and_names_without_a_master_are_shown(tmp_path: Path) -> None:
    controller = Controller(ControllerConfig(controller_store_path=str(tmp_path)), Clock())
    for name in ("a", "b"):
        for broker_id in (1, 2):
            apply(controller.groups, IdApplied(name, "c", broker_id, f"h:{broker_id}", "code"))
    apply(controller.groups, MasterElected("a", 2))
    assert note(controller) == "no master is elected for b"
    title, facts, tables = seen(controller)
    assert title == "aerobee controller"
    assert dict(facts)["Without a master"] == 1
    replicas, sets = (rows for _, _, rows in tables)
    assert [row[:7] for row in replicas] == [
        ("a", "c", 1, "h:1", "slave", "away", "behind"),
        ("a", "c", 2, "h:2", "master", "away", "in sync"),
        ("b", "c", 1, "h:1", "slave", "away", "behind"),
        ("b", "c", 2, "h:2", "slave", "away", "behind"),
    ]
    assert sets == [("a", "c", 1, 1, "2"), ("b", "c", 0, 0, "empty")]
    metrics = {name: list(values) for name, _, _, _, values in families(controller)}
    assert metrics["aerobee_controller_broker_names"] == [((), 2)]
    assert metrics["aerobee_controller_master_epoch"] == [(("c", "a"), 1), (("c", "b"), 0)]
    apply(controller.groups, MasterElected("b", 1))
    assert note(controller) is None
