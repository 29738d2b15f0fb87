"""The answers of the addresses under /api, which are also what the pages show.

Their description in OpenAPI is made of these types. None is "not known". Times are ms since 1970.
"""

from typing import Generic, TypedDict, TypeVar

from ...protocol.bodies.ha import HARuntimeInfo
from ...protocol.bodies.running import ConsumeStatus
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.bodies.topic import TopicConfig
from ..access.trail import Act
from ..actions.redrive import Counts
from ..clusters.samples import GroupRow, TopicRow
from ..findings.rules import Finding
from ..messages.history import Step
from ..messages.search import Progress
from ..messages.shown import Shown
from ..messages.waiting import OpenTransaction, Waiting

Row = TypeVar("Row")
# In a class with a field `list` this name is that field.
Texts = list[str]
Points = list[float | None]
Pairs = list[tuple[str, str]]


class Listed(TypedDict, Generic[Row]):
    """A page of a list: `total` rows without a filter, `matched` with it."""

    rows: list[Row]
    total: int
    matched: int
    page: int
    pages: int
    sort: str
    q: str


class Mark(TypedDict):
    """A broker that does not answer, since when, and why."""

    name: str
    id: int
    address: str
    why: str | None
    since_ms: int | None


class Samples(TypedDict):
    """The age of the figures, and the brokers whose figures are missing."""

    now_ms: int
    as_of_ms: int | None
    marks: list[Mark]
    names_wrong: str | None


class ClusterFact(TypedDict):
    """A cluster that the console watches, and how many of its brokers are away."""

    name: str
    brokers: int
    away: int
    wrong: str | None


class BrokerFact(TypedDict):
    """A broker; rates are messages a second, `disk` is the part of its disk that is used."""

    name: str
    id: int
    role: str
    cluster: str
    address: str
    version: str | None
    rate_in: float | None
    rate_out: float | None
    disk: float | None
    at_ms: int | None
    wrong: str | None


class Overview(TypedDict):
    """A cluster. `waiting` are messages that groups have not consumed, `behind` the groups whose
    oldest message waits longest, `histories` the rates of the span. `findings` are at most 100 of a
    kind about groups; `more` counts the others."""

    clusters: list[ClusterFact]
    brokers: list[BrokerFact]
    rate_in: float | None
    rate_out: float | None
    messages: int | None
    topics: int | None
    groups: int | None
    waiting: int | None
    dead_letters: int | None
    behind: list[GroupRow]
    findings: list[Finding]
    more: int
    histories: dict[str, Points]


class Topics(TypedDict):
    """Topics of a kind."""

    list: Listed[TopicRow]
    kind: str


class QueueFact(TypedDict):
    """A queue of a topic: its offsets, its messages, and the time of the last one."""

    broker: str
    queue: int
    min: int
    max: int
    messages: int
    last_ms: int | None


class TopicGroup(TypedDict):
    """The progress of a group in a topic."""

    group: str
    members: int | None
    members_at_least: bool
    topic: str
    is_retry: bool
    lag: int | None
    lag_ms: int | None
    in_flight: int | None
    rate_out: float | None
    lag_is_at_most: bool


class Topic(TypedDict):
    """One topic, with its settings by broker."""

    topic: TopicRow
    queues: list[QueueFact]
    cut: str | None
    messages: int | None
    groups: list[TopicGroup]
    settings: dict[str, TopicConfig] | None
    faults: list[str]
    history: Points
    is_dead: bool


class Groups(TypedDict):
    """Consumer groups."""

    list: Listed[GroupRow]
    with_system: bool


class GroupQueue(TypedDict):
    """The progress of a group in a queue."""

    topic: str
    broker: str
    queue: int
    end: int
    consumed: int | None
    lag: int | None
    last_ms: int | None


class Member(TypedDict):
    """A member of a group."""

    client: str
    address: str
    language: str
    version: str
    behind_proxy: bool


class Group(TypedDict):
    """One consumer group."""

    group: GroupRow
    queues: list[GroupQueue]
    cut: str | None
    members: list[Member] | None
    members_at_least: bool
    subscriptions: list[SubscriptionData]
    faults: list[str]
    retry_topic: str | None
    dead_topic: str | None
    history: Points


class MemberQueue(TypedDict):
    """A queue that a member holds, as the member reports it."""

    topic: str
    broker: str
    queue: int
    cached: int
    commit: int
    locked: bool
    pulled_ms: int | None
    consumed_ms: int | None


class MemberAccount(TypedDict):
    """A member's own account, with its rates by topic and the stacks of its threads."""

    group: str
    client: str
    properties: Pairs
    queues: list[MemberQueue]
    rates: list[tuple[str, ConsumeStatus]]
    stack: str
    cut: bool


class History(TypedDict):
    """Values at `first_ms`, `first_ms + step_ms` and so on."""

    first_ms: int
    step_ms: int
    values: Points


class ProducerRow(TypedDict):
    """A producer, and the brokers that know it."""

    group: str
    client: str
    address: str
    language: str
    version: str
    seen_ms: int | None
    brokers: list[str]


class Producers(TypedDict):
    """Producers; `missing` says which are not in the list, `faults` which brokers failed."""

    list: Listed[ProducerRow]
    missing: str | None
    faults: dict[str, str]


class LakeRow(TypedDict):
    """A topic's table. `lag_messages` and `lag_seconds` are what it is behind the log, `failure` is
    why the last pass did not succeed, and `last_failure` the last one that there was. `lake` is the
    address of the process that writes it."""

    topic: str
    table: str
    lake: str
    rows: int
    files: int
    bytes: int
    dead_letters: int
    gone: int
    lag_messages: int
    lag_seconds: float
    snapshot: int | None
    committed_ms: int | None
    failure: str
    last_failure: str
    last_failure_ms: int | None
    upkeep_failure: str
    last_upkeep_ms: int | None


class Lake(TypedDict):
    """The tables of the lakes whose addresses the console has; `faults` says which did not answer,
    and what fails at others."""

    list: Listed[LakeRow]
    lakes: Texts
    faults: dict[str, str]


class UserRow(TypedDict):
    """A user of a broker."""

    broker: str
    name: str | None
    type: str | None
    status: str | None


class RuleRow(TypedDict):
    """A rule of a broker."""

    broker: str
    subject: str | None
    type: str | None
    resource: str | None
    actions: list[str]
    sources: list[str]
    decision: str | None


class May(TypedDict):
    """The decision of a broker about an action, and the rule that decides."""

    broker: str
    allowed: bool
    rule: str


class Access(TypedDict):
    """Users and rules; `answers` to the question that the parameters ask. `is_off`: there is no
    access control, and all may do everything."""

    fault: str | None
    is_off: bool
    users: list[UserRow]
    rules: list[RuleRow]
    cut: str | None
    answers: list[May] | None


class Findings(TypedDict):
    """The findings of `aerobee doctor`. In a large cluster they are at most 100 of a kind about
    groups; `more` counts the others."""

    findings: list[Finding]
    more: int
    lines: list[str]
    note: str | None


class BrokerFigures(TypedDict):
    """Figures of a broker beside those of its row: since when it runs, messages that it stored
    today, and the time in ms within which it stored 99 % of messages."""

    started_ms: int | None
    stored_today: int | None
    put_ms: float | None


class Compared(TypedDict):
    """A broker that is compared by its key `name:id`; with `is_told` it told its settings."""

    key: str
    broker: BrokerFact
    figures: BrokerFigures
    is_told: bool


class Differing(TypedDict):
    """A setting in which brokers differ, with the values of those that told theirs by their keys;
    null is not set. `defaults` are those of the brokers, each once. `is_of_machine`: a name, an
    address, a folder, or computed from processors."""

    name: str
    values: dict[str, str | None]
    defaults: list[str | None]
    is_of_machine: bool


class Brokers(TypedDict):
    """All brokers, and those that are `compared`: the ones of the parameter, or all masters;
    not more than `compared_max`."""

    brokers: list[BrokerFact]
    faults: list[str]
    compared: list[Compared]
    differing: list[Differing]
    differing_cut: str | None
    compared_max: int
    cut: str | None


class Setting(TypedDict):
    """A setting of a broker. `differs` is null when no default is known: for a name that the
    version of the defaults does not have, or one that is of the machine (`is_of_machine`). A
    `default` of null is not set where `differs` is known."""

    name: str
    value: str | None
    default: str | None
    differs: bool | None
    is_of_machine: bool
    group: str


class ReportRow(TypedDict):
    """A figure that a broker reports, as its text."""

    name: str
    value: str
    group: str


class Broker(TypedDict):
    """One broker. The defaults are those of the version `defaults_of`, which is the broker's own
    if `is_its_version`."""

    broker: BrokerFact
    figures: BrokerFigures
    runtime: list[ReportRow]
    runtime_cut: str | None
    settings: list[Setting]
    settings_cut: str | None
    defaults_of: str
    is_its_version: bool
    ha: HARuntimeInfo | None
    faults: list[str]
    history: dict[str, Points]


class MessageRow(TypedDict):
    """A message; `brief` is the beginning of its body, `offset_id` says where it lies."""

    topic: str
    broker: str
    queue: int
    offset: int
    id: str
    offset_id: str
    tag: str
    keys: str
    stored_ms: int
    born_ms: int
    retries: int
    brief: str


# As for Texts.
Rows = list[MessageRow]


class DeadLetters(TypedDict):
    """Dead letter topics; behind `prefix` is the name of the group. `newest` are the newest letters
    of the topics that got one last; with `group` those of this group, and where older ones begin.
    """

    list: Listed[TopicRow]
    prefix: str
    group: str
    newest: Rows
    cursor: str | None
    faults: Texts


class SearchForm(TypedDict):
    """The search bar as it was filled in: an id or a key, or an expression, and a time; and the
    topics to choose from, the ones with the newest messages first. `read_as` says what its text is,
    `key` or `expression`, where its signs do not."""

    topic: str
    key: str
    expression: str
    read_as: str
    begin: str
    end: str
    cursor: str
    topics: list[str]


class Messages(SearchForm):
    """The messages with a key or an id; without one the newest ones, and where older ones begin."""

    found: list[MessageRow]
    progress: Progress | None


class DeadLetter(TypedDict):
    """What a dead letter is: `group` gave the message up that was sent to `topic` with this id;
    `what` says after how many deliveries."""

    group: str
    what: str
    topic: str
    id: str


class MessageGone(TypedDict):
    """The history of a deleted message."""

    topic: str
    row: None
    way: list[Step]


# A field has the name of a keyword.
Message = TypedDict(
    "Message",
    {
        "topic": str,
        "broker": str,
        "row": MessageRow,
        "offset_id": str,
        "flag": int,
        "half_topic": str | None,
        "dead": DeadLetter | None,
        "is_intact": bool,
        "own": Pairs,
        "system": Pairs,
        "body": Shown,
        "as": str,
        "types": list[str],
        "way": list[Step],
    },
)


class Scan(TypedDict):
    """A scan of queues of waiting messages; `cut` says why it ended before their ends."""

    count: int | None
    cut: str | None
    faults: list[str]
    now_ms: int


class Scheduled(Scan):
    """Messages that wait; `recallable` is recallMessageEnable by broker."""

    rows: list[Waiting]
    recallable: dict[str, str | None]


class Transactions(Scan):
    """Half messages that are open."""

    rows: list[OpenTransaction]


class Found(TypedDict):
    """The messages that a search found, and its progress."""

    found: list[MessageRow]
    progress: Progress


class Link(TypedDict):
    """A page about what an action was done to."""

    page: str
    name: str


class AuditRow(TypedDict):
    """An action."""

    act: Act
    links: list[Link]


class Audit(TypedDict):
    """Actions, and what they can be filtered by."""

    list: Listed[AuditRow]
    user: str
    action: str
    result: str
    users: Texts
    actions: Texts
    results: Texts
    file: str
    cut: str | None


class ChangeRow(TypedDict):
    """A change that an action would make in a place."""

    place: str
    now: str
    then: str
    note: str


class Preview(TypedDict):
    """The plan of an action. `preview` is for the confirmation, None if the action is refused;
    `typed` is to be given with it."""

    preview: str | None
    typed: str | None
    changes: list[ChangeRow]
    notes: list[str]
    refusals: list[str]


class OutcomeRow(TypedDict):
    """The result of a change."""

    place: str
    what: str
    result: str
    remark: str


class Redrive(TypedDict):
    """The progress of a redrive; `why` says why it ended early."""

    run: str
    group: str
    target: str
    phase: str
    why: str | None
    total: int
    counts: Counts
    file: str


class Confirmation(TypedDict):
    """The outcomes of a confirmed action, with `counts` by result; `run` is a redrive that has
    begun. `fault` says why the audit lacks the result."""

    outcomes: list[OutcomeRow]
    counts: dict[str, int]
    run: Redrive | None
    fault: str | None
