"""The status and the metrics of a controller."""

from pathlib import Path

from aerobee.controller.config import ControllerConfig
from aerobee.controller.overview import families, note, overview
from aerobee.controller.replicas import IdApplied, MasterElected, apply
from aerobee.controller.server import Controller

from ..clocks import Clock
from ..steps import result_of


def test_replicas_sets_and_names_without_a_master_are_shown(tmp_path: Path) -> None:
    controller = Controller(ControllerConfig(controller_store_path=str(tmp_path)), Clock())
    for name in ("a", "b"):
        for broker_id in (1, 2):
            apply(controller.groups, IdApplied(name, "c", broker_id, f"h:{broker_id}", "code"))
    apply(controller.groups, MasterElected("a", 2))
    assert note(controller) == "no master is elected for b"
    found = result_of(overview(controller))
    assert found["daemon"] == "controller"
    assert found["without_a_master"] == ["b"]
    keys = ("broker", "cluster", "broker_id", "address", "is_master", "is_alive", "in_sync")
    assert [tuple(row[key] for key in keys) for row in found["replicas"]] == [
        ("a", "c", 1, "h:1", False, False, False),
        ("a", "c", 2, "h:2", True, False, True),
        ("b", "c", 1, "h:1", False, False, False),
        ("b", "c", 2, "h:2", False, False, False),
    ]
    sets = [tuple(row.values()) for row in found["sets"]]
    assert sets == [("a", "c", 1, 1, [2]), ("b", "c", 0, 0, [])]
    metrics = {name: list(values) for name, _, _, _, values in families(controller)}
    assert metrics["aerobee_controller_broker_names"] == [((), 2)]
    assert metrics["aerobee_controller_master_epoch"] == [(("c", "a"), 1), (("c", "b"), 0)]
    apply(controller.groups, MasterElected("b", 1))
    assert note(controller) is None
