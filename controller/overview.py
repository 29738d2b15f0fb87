"""What a controller tells of itself, and its metrics."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from ..conf.version import own_version
from .server import Controller

Overview = dict[str, Any]
# A metric: name, "counter" or "gauge", description, names of the labels, values by labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]


def overview(
    controller: Controller, *, with_system: bool = False
) -> Generator[None, None, Overview]:
    """The steps of reading the controller's present state; requests are served between two.

    `with_system` is for daemons that have topics, and changes nothing here.
    """
    engine = controller.engine
    replicas = []
    for name, group in sorted(controller.groups.items()):
        yield
        for broker_id, member in sorted(group.members.items()):
            key = (group.cluster, name, broker_id)
            position = controller.live.position(key)
            replicas.append(
                {
                    "broker": name,
                    "cluster": group.cluster,
                    "broker_id": broker_id,
                    "address": member.address,
                    "is_master": broker_id == group.master_id,
                    "is_alive": controller.live.is_alive(key),
                    "in_sync": broker_id in group.sync_set,
                    "epoch": position.epoch,
                    "max_offset": position.max_offset,
                }
            )
    return {
        "daemon": "controller",
        "address": controller.address,
        "without_a_master": _without_master(controller),
        "elections": controller.elections,
        "leads": engine.is_leader,
        "leader": engine.leading.address,
        "state": engine.place,
        "replicas": replicas,
        "sets": [
            {
                "broker": name,
                "cluster": group.cluster,
                "master_epoch": group.master_epoch,
                "set_epoch": group.sync_set_epoch,
                "members": list(group.sync_set),
            }
            for name, group in sorted(controller.groups.items())
        ],
    }


def note(controller: Controller) -> str | None:
    """A remark for the operator of a healthy controller; None without one."""
    if controller.engine.fault:
        return f"the state can't be used: {controller.engine.fault}"
    lost = _without_master(controller)
    return f"no master is elected for {', '.join(lost)}" if lost else None


def families(controller: Controller) -> Iterator[Family]:
    """The controller's metrics, under aerobee's own names."""
    text = "The version of aerobee, as a label; the value is 1"
    yield "aerobee_build_info", "gauge", text, ("version",), [((own_version(),), 1)]
    numbers = [
        ("aerobee_controller_leads", "1 while this controller leads", controller.engine.is_leader),
        ("aerobee_controller_broker_names", "Broker names with a member", len(controller.groups)),
        (
            "aerobee_controller_live_brokers",
            "Brokers whose heartbeats count",
            sum(1 for _ in controller.live.alive()),
        ),
    ]
    for name, text, value in numbers:
        yield name, "gauge", text, (), [((), value)]
    yield (
        "aerobee_controller_elections_total",
        "counter",
        "Masters elected since the start",
        (),
        [((), controller.elections)],
    )
    for name, text, attribute in (
        ("aerobee_controller_master_epoch", "How many masters the name has had", "master_epoch"),
        ("aerobee_controller_sync_set_epoch", "The number of the set", "sync_set_epoch"),
    ):
        yield (
            name,
            "gauge",
            text,
            ("cluster", "broker"),
            [
                ((group.cluster, broker), getattr(group, attribute))
                for broker, group in controller.groups.items()
            ],
        )
    yield (
        "aerobee_controller_sync_set_members",
        "gauge",
        "Members of the sync state set",
        ("cluster", "broker"),
        [
            ((group.cluster, broker), len(group.sync_set))
            for broker, group in controller.groups.items()
        ],
    )


def _without_master(controller: Controller) -> list[str]:
    return sorted(name for name, group in controller.groups.items() if group.master_id is None)
