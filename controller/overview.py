"""The status page and the metrics of a controller."""

from collections.abc import Generator, Iterable, Iterator, Sequence

from ..conf.version import own_version
from .server import Controller

Cell = str | int | float
# A table: title, columns, rows. An overview: title, facts, tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Overview = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]
# A metric: name, "counter" or "gauge", description, names of the labels, values by labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]


def overview(
    controller: Controller, *, with_system: bool = False
) -> Generator[None, None, Overview]:
    """Builds the status page in steps; the controller serves requests between two steps.

    `with_system` is for daemons that have topics, and changes nothing here.
    """
    engine = controller.engine
    brokers: list[tuple[Cell, ...]] = []
    for name, group in sorted(controller.groups.items()):
        yield
        for broker_id, member in sorted(group.members.items()):
            key = (group.cluster, name, broker_id)
            position = controller.live.position(key)
            role = "master" if broker_id == group.master_id else "slave"
            brokers.append(
                (
                    *(name, group.cluster, broker_id, member.address, role),
                    "alive" if controller.live.is_alive(key) else "away",
                    "in sync" if broker_id in group.sync_set else "behind",
                    *(position.epoch, position.max_offset),
                )
            )
    facts: list[tuple[str, Cell]] = [
        ("Broker names", len(controller.groups)),
        ("Without a master", len(_without_master(controller))),
        ("Elections since the start", controller.elections),
        ("Address", controller.address),
        ("Leads", "yes" if engine.is_leader else f"no, {engine.leading.address or 'unknown'} does"),
        ("State", engine.place),
    ]
    groups = [
        (name, group.cluster, group.master_epoch, group.sync_set_epoch, _ids(group.sync_set))
        for name, group in sorted(controller.groups.items())
    ]
    columns = ("Broker", "Cluster", "Id", "Address", "Role", "Heartbeat", "Log", "Epoch", "Offset")
    sets = ("Broker", "Cluster", "Master epoch", "Set epoch", "Sync state set")
    return "aerobee controller", facts, [("Replicas", columns, brokers), ("Sets", sets, groups)]


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
        *("aerobee_controller_elections_total", "counter"),
        *("Masters elected since the start", (), [((), controller.elections)]),
    )
    for name, text, attribute in (
        ("aerobee_controller_master_epoch", "How many masters the name has had", "master_epoch"),
        ("aerobee_controller_sync_set_epoch", "The number of the set", "sync_set_epoch"),
    ):
        yield (
            *(name, "gauge", text, ("cluster", "broker")),
            [
                ((group.cluster, broker), getattr(group, attribute))
                for broker, group in controller.groups.items()
            ],
        )
    yield (
        *("aerobee_controller_sync_set_members", "gauge", "Members of the sync state set"),
        ("cluster", "broker"),
        [
            ((group.cluster, broker), len(group.sync_set))
            for broker, group in controller.groups.items()
        ],
    )


def _without_master(controller: Controller) -> list[str]:
    return sorted(name for name, group in controller.groups.items() if group.master_id is None)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "empty"
