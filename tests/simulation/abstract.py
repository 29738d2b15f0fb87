"""All short histories of three replicas on abstract logs, with the product's own rules.

A message is one byte of the log; its number is its identity. Everything that takes time is an event
of its own, so a partition or a pause is a history in which some events do not happen. The rules are
the product's: `controller.rules` and `replicas`, `epochs.entries`, `sync_state`, `authority`. The
disk is that of SYNC_FLUSH: what a slave reports and what a master acknowledges is synced.

`explore` tries every history up to a number of events, and goes on once from each state.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from aerobee.broker.controlled.authority import Authority
from aerobee.broker.replication import sync_state
from aerobee.broker.replication.sync_state import SyncState
from aerobee.controller import replicas, rules
from aerobee.controller.live import Key, LiveBrokers, Position
from aerobee.controller.replicas import Member, ReplicaGroup
from aerobee.controller.rules import Decision
from aerobee.protocol import codes
from aerobee.protocol.bodies.controller import SyncStateSet
from aerobee.protocol.headers import controller as headers
from aerobee.store.engine.state import StoreState
from aerobee.store.epochs import entries as epochs
from aerobee.store.epochs.entries import EpochEntry

IDS = (1, 2, 3)
CLUSTER, NAME = "c", "b"
TIMEOUT_MS = 10_000
UNHEARD = -1  # a slave that has not reported
MEMBERS = {one: Member(f"{one}:1", "") for one in IDS}
Ids = frozenset[int]


class Proposal(NamedTuple):
    """A request for another sync state set that is on its way to the controller."""

    master: int
    epoch: int
    wanted: Ids
    set_epoch: int


class Node(NamedTuple):
    """One replica. The second half is what a master keeps in memory."""

    log: tuple[int, ...] = ()
    synced: int = 0  # how much of the log no power cut takes away
    epochs: tuple[EpochEntry, ...] = ()
    confirmed: int = 0
    is_up: bool = True
    epoch: int = 0  # of its role; 0 is none
    master: int = 0  # the master in that role
    is_linked: bool = False  # a slave that has agreed with its master where their logs part
    report: tuple[int, int] | None = None  # one that is on its way: to which master, and the end
    members: Ids = frozenset()
    set_epoch: int = 0
    proposed: Ids = frozenset()
    is_answered: bool = False
    is_lost: bool = False
    asked: Proposal | None = None  # the proposal whose answer it waits for
    ends: tuple[int, ...] = (UNHEARD,) * 3
    proofs: Ids = frozenset()  # heard since time has passed last; 0 is the controller

    @property
    def safe_end(self) -> int:
        """The `safe_end` of `StoreState`, whose rule for readers takes this class for one."""
        return self.synced


class State(NamedTuple):
    """Everything at one moment."""

    nodes: tuple[Node, ...]
    master: int | None
    master_epoch: int
    sync_set: tuple[int, ...]
    set_epoch: int
    alive: tuple[bool, ...] = (True,) * 3
    proposals: frozenset[Proposal] = frozenset()
    seen: tuple[int, ...] = ()  # what readers have got; all that was acknowledged is part of it
    led_epoch: int = 0  # the newest that a master had when time passed last
    is_timed: bool = False  # time can pass; else it never does


class Broken(AssertionError):
    """An invariant does not hold."""


def all_in_the_set() -> State:
    """A set of three that nothing has happened to."""
    slave = Node(epoch=1, master=1, is_linked=True)
    first = (EpochEntry(1, 0),)
    master = Node((), 0, first, 0, True, 1, 1, members=Ids(IDS), set_epoch=3, ends=(UNHEARD, 0, 0))
    return State((master, slave, slave), 1, 1, IDS, 3)


def alone_in_the_set() -> State:
    """A first master, whose slaves have not connected yet."""
    slave = Node(epoch=1, master=1)
    master = Node((), 0, (EpochEntry(1, 0),), 0, True, 1, 1, members=Ids({1}), set_epoch=1)
    return State((master, slave, slave), 1, 1, (1,), 1)


Step = tuple[str, State]
First = Callable[[], State]


def explore(first: State, events: int) -> tuple[int, int]:
    """Try all histories of up to this many events; returns the numbers of states and of steps.

    Broken, with the history, when an invariant does not hold.
    """
    for each in (_needs_election, _election, _registered, _altered):
        each.cache_clear()
    before: dict[State, tuple[State, str] | None] = {first: None}
    newest, steps = [first], 0
    for number in range(events):
        is_last = number == events - 1
        reached = []
        for state in newest:
            for event, after in next_steps(state):
                steps += 1
                try:
                    after = _checked(state, after)
                except Broken as wrong:
                    raise Broken("\n".join([str(wrong), *_history(before, state), event])) from None
                if not is_last and after not in before and _mirrored(after) not in before:
                    before[after] = state, event
                    reached.append(after)
        newest = reached
    return len(before), steps


def _history(before: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    found = []
    while (step := before[state]) is not None:
        state, event = step
        found.append(event)
    return found[::-1]


# The replicas 2 and 3 begin alike, so histories in which they change places are the same.
MIRROR = (0, 1, 3, 2)


def _mirrored(state: State) -> State:
    first, second, third = map(_mirrored_node, state.nodes)
    one, two, three = state.alive
    return state._replace(
        nodes=(first, third, second),
        master=None if state.master is None else MIRROR[state.master],
        sync_set=tuple(sorted(MIRROR[each] for each in state.sync_set)),
        alive=(one, three, two),
        proposals=frozenset(map(_mirrored_proposal, state.proposals)),
    )


def _mirrored_node(node: Node) -> Node:
    one, two, three = node.ends
    return node._replace(
        master=MIRROR[node.master],
        report=node.report and (MIRROR[node.report[0]], node.report[1]),
        members=_mirrored_ids(node.members),
        proposed=_mirrored_ids(node.proposed),
        asked=node.asked and _mirrored_proposal(node.asked),
        ends=(one, three, two),
        proofs=_mirrored_ids(node.proofs),
    )


def _mirrored_proposal(one: Proposal) -> Proposal:
    return one._replace(master=MIRROR[one.master], wanted=_mirrored_ids(one.wanted))


def _mirrored_ids(ids: Ids) -> Ids:
    return Ids(MIRROR[each] for each in ids)


# ---- what must hold


def _checked(before: State, after: State) -> State:
    """Readers get all that is readable now. Broken when an offset has two messages, when a member
    of the set lacks what was read or acknowledged, or when an epoch has two masters."""
    nodes, seen, epochs_led = after.nodes, after.seen, []
    for one in IDS:
        node = nodes[one - 1]
        if not node.is_up:
            continue
        old = before.nodes[one - 1]
        if node.master == one:
            epochs_led.append(node.epoch)
            if node.epoch < before.led_epoch and len(node.log) > len(old.log):
                raise Broken(f"{one} takes a message in epoch {node.epoch} for longer than it may")
        if node is old:
            continue
        end = vars(StoreState)["readable_end"].fget(node)
        both = min(end, len(seen))
        if node.log[:both] != seen[:both]:
            raise Broken(f"replica {one} shows readers {node.log[:end]}, others showed {seen}")
        if end > len(seen):
            seen = node.log[:end]
    if len(set(epochs_led)) < len(epochs_led):
        raise Broken(f"an epoch has two masters: {epochs_led}")
    if seen != before.seen or nodes != before.nodes or after.sync_set != before.sync_set:
        for one in after.sync_set:
            node = nodes[one - 1]
            if node.synced < len(seen) or node.log[: len(seen)] != seen:
                raise Broken(
                    f"replica {one} may be elected and lacks what was acknowledged or read, which "
                    f"is {seen}: its log is {node.log}, of which {node.synced} are synced"
                )
    return after if seen == before.seen else after._replace(seen=seen)


def leads(one: int, node: Node) -> bool:
    """True if this replica runs as a master."""
    return node.is_up and node.master == one


# ---- events


def next_steps(state: State) -> Iterator[Step]:
    """Each event that can come next, and the state after it."""
    for one in IDS:
        node = state.nodes[one - 1]
        if not node.is_up:
            yield f"{one} starts again", _put(state, one, _started(node))
            continue
        for kept in range(node.synced, len(node.log)):
            yield f"{one} loses its power, {kept} stay", _died(state, one, kept)
        yield f"{one} is killed", _died(state, one, len(node.log))
        after = _told(state, one)
        if after != state:
            yield f"{one} asks the controller for its role", after
        if leads(one, node):
            yield from _steps_of_master(state, one, node)
        else:
            yield from _steps_of_slave(state, one, node)
        heard = _heard(state, one)
        if heard != state:
            yield f"the controller hears {one}", heard
    yield from _steps_of_controller(state)
    if state.is_timed and any(node.proofs or node.report is not None for node in state.nodes):
        yield "time passes", _later(state)


def _steps_of_master(state: State, one: int, node: Node) -> Iterator[Step]:
    if not state.is_timed or _has_authority(one, node):
        message = 1 + max(
            (*state.seen, *(each for node in state.nodes for each in node.log)), default=0
        )
        log = (*node.log, message)
        written = _put(state, one, node._replace(log=log))
        yield f"{one} writes message {message}", _confirm(written, one)
        synced = _put(state, one, node._replace(log=log, synced=len(log)))
        yield f"{one} writes and syncs message {message}", _confirm(synced, one)
    for wanted in _wanted(node, one):
        asked, proposal = _asked(state, one, wanted)
        name = sorted(wanted)
        yield f"{one} proposes the set {name}", asked
        yield f"{one} proposes the set {name} and is answered", _answered(asked, proposal)


def _steps_of_slave(state: State, one: int, node: Node) -> Iterator[Step]:
    master = node.master
    if not master or not leads(master, state.nodes[master - 1]):
        return
    for all_of_it in (True, False):
        after = _received(state, one, all_of_it=all_of_it)
        if after is None:
            continue
        what = "the log" if all_of_it else "an epoch"
        node = after.nodes[one - 1]
        synced = node._replace(synced=len(node.log))
        sent = _put(after, one, synced._replace(report=(master, len(node.log))))
        yield f"{one} gets {what} of {master} and sends a report", sent
        yield f"{one} gets {what} of {master} and reports", _reported(sent, one)


def _steps_of_controller(state: State) -> Iterator[Step]:
    for one in IDS:
        if state.alive[one - 1]:
            alive = tuple(
                is_alive and each != one for each, is_alive in zip(IDS, state.alive, strict=True)
            )
            yield f"the controller hears nothing of {one}", state._replace(alive=alive)
        after = _elected(state, one, by_hand=True)
        if after != state:
            yield f"{one} is elected by hand", after
        if state.nodes[one - 1].report is not None:
            yield f"the report of {one} arrives", _reported(state, one)
    if _needs_election(_controller(state)):
        after = _elected(state, headers.CONTROLLER_ITSELF, by_hand=False)
        if after != state:
            yield "the controller elects", after
    for proposal in state.proposals:
        name = f"the proposal of {sorted(proposal.wanted)} by {proposal.master}"
        yield f"{name} arrives", _answered(state, proposal)
        yield f"{name} arrives, its answer is lost", _decided(state, proposal)[0]


# ---- the disk and the process


def _died(state: State, one: int, kept: int) -> State:
    """Stop a replica: what it has written stays; without the power, at least what was synced."""
    node = state.nodes[one - 1]
    log = node.log[:kept]
    state = _put(
        _closed(state, one),
        one,
        Node(
            log,
            min(node.synced, kept),
            node.epochs,
            min(node.confirmed, kept),
            False,
            report=node.report,
        ),
    )
    return state


def _closed(state: State, one: int) -> State:
    """The connections of slaves to this broker are closed."""
    for slave in IDS:
        node = state.nodes[slave - 1]
        if slave != one and node.master == one:
            node = node._replace(is_linked=False)
        if node.report is not None and node.report[0] == one:
            node = node._replace(report=None)
        state = _put(state, slave, node)
    return state


def _started(node: Node) -> Node:
    """Start a replica, whose role is not known yet."""
    return node._replace(is_up=True, epochs=epochs.cut_at(node.epochs, len(node.log) + 1))


# ---- the role


def _told(state: State, one: int) -> State:
    """A broker asks for its role, and takes it."""
    state = _heard(state, one)
    node = state.nodes[one - 1]
    if not node.epoch:
        state = state._replace(**_registered(_controller(state), one))
    if state.master is None or (not node.epoch and not state.alive[state.master - 1]):
        state = _elected(state, one, by_hand=False)
    if state.master is None:
        return state
    if state.master_epoch > node.epoch:
        return _take_role(state, one, node, state.master)
    if state.master_epoch == node.epoch and state.master == one:
        sync = _sync_state(node)
        if sync.take(Ids(state.sync_set), state.set_epoch):
            node = _with(node, sync)
        if state.is_timed:
            node = node._replace(proofs=node.proofs | {0})
        return _confirm(_put(state, one, node), one)
    return state


def _take_role(state: State, one: int, node: Node, master: int) -> State:
    """The broker stops and starts in its new role; all its connections are closed."""
    state = _closed(state, one)
    new = Node(
        node.log,
        len(node.log),
        node.epochs,
        node.confirmed,
        True,
        epoch=state.master_epoch,
        master=master,
        report=node.report,
    )
    if master != one:
        return _put(state, one, new)
    start = len(node.log) if node.epochs else 0
    begun = epochs.appended(node.epochs, EpochEntry(state.master_epoch, start))
    if epochs.disorder(begun) is not None:
        return state  # it does not start as the master
    new = new._replace(
        epochs=begun,
        members=Ids(state.sync_set),
        set_epoch=state.set_epoch,
        proofs=Ids({0}) if state.is_timed else Ids(),
    )
    return _confirm(_put(state, one, new), one)


def _has_authority(one: int, node: Node) -> bool:
    now = TIMEOUT_MS
    judge = Authority(one, TIMEOUT_MS, lambda: 0)
    if 0 in node.proofs:
        judge.named(now)
    judge._now_ms = lambda: now
    reports = dict.fromkeys(node.proofs, now)
    return judge.refusal(_sync_state(node).counted(), reports) is None


def _later(state: State) -> State:
    """Let so much time pass that no proof counts any more; a report does not take so long."""
    led = max(
        (node.epoch for one, node in zip(IDS, state.nodes, strict=True) if leads(one, node)),
        default=0,
    )
    nodes = tuple(node._replace(proofs=Ids(), report=None) for node in state.nodes)
    return state._replace(nodes=nodes, led_epoch=max(state.led_epoch, led))


# ---- replication


def _received(state: State, one: int, *, all_of_it: bool) -> State | None:
    """A slave has its master's log, or only the next chunk, which ends with its epoch. None when
    that is the whole log anyway, or when it can't follow."""
    node = state.nodes[one - 1]
    master = state.nodes[node.master - 1]
    if not node.is_linked:
        agreed = _agreed(node, master)
        if agreed is None:
            return None
        node = agreed._replace(is_linked=True, report=None)
        state = _cut_off(state, node.master, one, is_slave_kept=True)
    log, known = node.log, node.epochs
    end = len(log)
    for number, entry in enumerate(master.epochs):
        stop = min(epochs.end_of(master.epochs, number), len(master.log))
        if stop <= end:
            continue
        known = epochs.appended(known, entry)
        if epochs.disorder(known) is not None:
            return None
        end = stop
        if not all_of_it:
            break
    if not all_of_it and end == len(master.log):
        return None
    node = node._replace(log=master.log[:end], epochs=known)
    node = node._replace(confirmed=max(node.confirmed, min(master.confirmed, end)))
    return _put(state, one, node)


def _agreed(node: Node, master: Node) -> Node | None:
    """The slave cuts its log where the master's parts from it. None when it can't tell where, or
    when its last message is not the master's."""
    own = epochs.cut_at(node.epochs, len(node.log))
    point = len(node.log)
    if own or len(node.log) > len(master.log):
        found = epochs.consistent_point(own, len(node.log), master.epochs, len(master.log))
        if found is None:
            return None
        point = found
    log = node.log[:point]
    if log and log[-1] != master.log[point - 1]:
        return None
    return node._replace(
        log=log,
        synced=min(node.synced, point),
        epochs=epochs.cut_at(own, point),
        confirmed=min(node.confirmed, point),
    )


def _reported(state: State, one: int) -> State:
    """A slave's report is there, if its master still is."""
    slave = state.nodes[one - 1]
    assert slave.report is not None
    number, end = slave.report
    state = _put(state, one, slave._replace(report=None))
    master = state.nodes[number - 1]
    if not leads(number, master) or end > len(master.log):
        return state
    ends = tuple(end if each == one else had for each, had in zip(IDS, master.ends, strict=True))
    proofs = master.proofs | {one} if state.is_timed else master.proofs
    state = _put(state, number, master._replace(ends=ends, proofs=proofs))
    return _confirm(state, number)


def _cut_off(state: State, master: int, slave: int, *, is_slave_kept: bool = False) -> State:
    """The master's connection to a slave is gone."""
    node = state.nodes[master - 1]
    ends = tuple(
        UNHEARD if each == slave else had for each, had in zip(IDS, node.ends, strict=True)
    )
    state = _put(state, master, node._replace(ends=ends))
    other = state.nodes[slave - 1]
    if other.master == master and not is_slave_kept:
        other = other._replace(is_linked=False)
    if other.report is not None and other.report[0] == master:
        other = other._replace(report=None)
    return _put(state, slave, other)


def _confirm(state: State, one: int) -> State:
    """A master works out how far its log is confirmed."""
    node = state.nodes[one - 1]
    ends = {each: end for each, end in zip(IDS, node.ends, strict=True) if end != UNHEARD}
    needed = _sync_state(node).counted()
    end = sync_state.confirmed_end(one, node.synced, needed, ends)
    if end is None or end <= node.confirmed:
        return state
    return _put(state, one, node._replace(confirmed=end))


# ---- the sync state set


def _wanted(node: Node, one: int) -> list[Ids]:
    """The sets that this master may propose: slow or lost members leave, one that has all comes."""
    if one not in node.members:
        return []
    start = node.epochs[-1].start_offset
    found = [node.members - {each} for each in node.members if each != one]
    if len(node.members) > 2:
        found.append(Ids({one}))
    for other in IDS:
        end = node.ends[other - 1]
        is_new = other not in node.members and end != UNHEARD
        if is_new and sync_state.may_join(end, node.confirmed, start):
            found.append(node.members | {other})
    if node.proposed:
        found.append(node.members)
    return found


def _asked(state: State, one: int, wanted: Ids) -> tuple[State, Proposal]:
    node = state.nodes[one - 1]
    sync = _sync_state(node)
    sync.is_lost |= node.asked is not None and node.asked.set_epoch == node.set_epoch
    sync.propose(wanted)
    proposal = Proposal(one, node.epoch, wanted, node.set_epoch)
    state = _put(state, one, _with(node, sync)._replace(asked=proposal))
    return state._replace(proposals=state.proposals | {proposal}), proposal


def _decided(state: State, proposal: Proposal) -> tuple[State, Decision]:
    """The controller has the proposal."""
    decision, changed = _altered(_controller(state), proposal)
    state = state._replace(**changed)
    # A proposal from before the present set changes nothing any more.
    left = [one for one in state.proposals if one != proposal and one.set_epoch == state.set_epoch]
    return state._replace(proposals=frozenset(left)), decision


def _answered(state: State, proposal: Proposal) -> State:
    """The controller has the proposal, and the master its answer, if it still waits for it."""
    state, decision = _decided(state, proposal)
    one = proposal.master
    node = state.nodes[one - 1]
    if not leads(one, node) or node.asked != proposal:
        return state
    sync = _sync_state(node)
    if decision.code == codes.SUCCESS:
        found = SyncStateSet.decode(decision.body)
        if found.sync_state_set_epoch > sync.set_epoch:
            sync.take(Ids(found.sync_state_set), found.sync_state_set_epoch)
    sync.is_answered = True
    return _confirm(_put(state, one, _with(node, sync)._replace(asked=None)), one)


def _sync_state(node: Node) -> SyncState:
    return SyncState(
        node.members, node.set_epoch, node.proposed, 0, {}, node.is_answered, node.is_lost
    )


def _with(node: Node, sync: SyncState) -> Node:
    return node._replace(
        members=sync.members,
        set_epoch=sync.set_epoch,
        proposed=sync.proposed,
        is_answered=sync.is_answered,
        is_lost=sync.is_lost,
    )


# ---- the controller


class Controller(NamedTuple):
    """The facts that the controller decides by. `positions` are the newest epoch and the end of
    each log."""

    master: int | None
    master_epoch: int
    sync_set: tuple[int, ...]
    set_epoch: int
    alive: tuple[bool, ...]
    positions: tuple[tuple[int, int], ...]

    def is_alive(self, key: Key) -> bool:
        return self.alive[key[2] - 1]

    def is_dead(self, key: Key) -> bool:
        return not self.alive[key[2] - 1]

    def address(self, key: Key) -> str | None:
        return f"{key[2]}:1" if self.alive[key[2] - 1] else None

    def position(self, key: Key) -> Position:
        return Position(*self.positions[key[2] - 1], 0)


Changes = dict[str, Any]


def _controller(state: State) -> Controller:
    positions = tuple(
        (node.epochs[-1].epoch if node.epochs else 0, len(node.log)) for node in state.nodes
    )
    return Controller(*state[1:6], positions)


def _parts(controller: Controller) -> tuple[dict[str, ReplicaGroup], LiveBrokers]:
    group = ReplicaGroup(
        CLUSTER,
        NAME,
        MEMBERS,
        4,
        controller.master,
        controller.master_epoch,
        list(controller.sync_set),
        controller.set_epoch,
    )
    live: Any = controller
    return {NAME: group}, live


def _changes(groups: dict[str, ReplicaGroup], decision: Decision) -> Changes:
    if not decision.events:
        return {}
    for event in decision.events:
        replicas.apply(groups, event)
    group = groups[NAME]
    return {
        "master": group.master_id,
        "master_epoch": group.master_epoch,
        "sync_set": tuple(group.sync_set),
        "set_epoch": group.sync_set_epoch,
    }


@cache
def _needs_election(controller: Controller) -> bool:
    return bool(rules.to_elect(*_parts(controller)))


@cache
def _election(controller: Controller, asker: int, by_hand: bool) -> Changes:
    groups, live = _parts(controller)
    header = headers.ElectMaster(CLUSTER, NAME, asker, by_hand)
    return _changes(groups, rules.elect_master(groups, live, header))


@cache
def _registered(controller: Controller, one: int) -> Changes:
    groups, live = _parts(controller)
    header = headers.RegisterBrokerToController(NAME, one, MEMBERS[one].address, CLUSTER, 0)
    return _changes(groups, rules.register(groups, live, header))


@cache
def _altered(controller: Controller, proposal: Proposal) -> tuple[Decision, Changes]:
    groups, live = _parts(controller)
    header = headers.AlterSyncStateSet(NAME, proposal.master, proposal.epoch)
    wanted = SyncStateSet(sorted(proposal.wanted), proposal.set_epoch)
    decision = rules.alter_sync_set(groups, live, header, wanted)
    return decision, _changes(groups, decision)


def _elected(state: State, asker: int, *, by_hand: bool) -> State:
    changed = _election(_controller(state), asker, by_hand)
    return state._replace(**changed) if changed else state


def _heard(state: State, one: int) -> State:
    """A heartbeat is there."""
    if state.alive[one - 1]:
        return state
    alive = tuple(is_alive or each == one for each, is_alive in zip(IDS, state.alive, strict=True))
    return state._replace(alive=alive)


def _put(state: State, one: int, node: Node) -> State:
    nodes = state.nodes
    return state._replace(nodes=(*nodes[: one - 1], node, *nodes[one:]))
