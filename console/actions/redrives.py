"""The redrives of a console: rehearsal, the runs, and their files."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from ...client.base.identity import now_ms
from ...client.errors import ClientError, NoRouteError
from ...protocol.filters.sql92 import Predicate, SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.record import Record
from ...protocol.names import DLQ_PREFIX
from ..clusters.clusters import Watched
from ..messages.fields import named, sought_by
from ..messages.search import SCANNED_MAX, Progress, search
from ..messages.shown import id_of
from ..texts import Text, counted, joined, text_of
from ..times import time_text
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .groups import GROUP
from .ledger import SENDING, SENT, UNKNOWN, Ledger, LedgerFull
from .letters import FIELD, ids_in, picked
from .places import masters_of
from .redrive import RATE_MAX, Phase, Run, drive, origin, refusal_of

LETTERS_MAX = 100_000  # of one run
RUNS_MAX = 50  # that are remembered
RUNNING_MAX = 4
UNTYPED_MAX = 10  # letters that are given by their ids, and go without the group's name being typed
TOLD_MAX = 20  # letters that a preview names, of those that are given by their ids
KEYS_CHARS_MAX = 200  # of a letter, in a preview
TO_GROUP = "the group only"
TO_ORIGIN = "the topic that each was sent to"
TO_TOPIC = "a topic"
TARGETS = (TO_GROUP, TO_ORIGIN, TO_TOPIC)


class Network:
    """Letters go to a cluster's topics: a `Post`."""

    def __init__(self, watched: Watched, group: str, kind: str, topic: str) -> None:
        self._watched = watched
        self._group = group
        self._kind = kind
        self._topic = topic
        self._topics: dict[str, str] = {}  # the retry topic by the topic of a letter

    async def topic_for(self, letter: Record) -> str:
        """The topic to send a letter to."""
        if self._kind == TO_TOPIC:
            return self._topic
        first = origin(letter, self._group)
        if self._kind == TO_ORIGIN:
            return first
        if first not in self._topics:
            self._topics[first] = await self._watched.admin.retry_topic(first, self._group)
        return self._topics[first]

    async def send(self, letter: Record, topic: str, keys: str) -> None:
        """Send a letter with one request."""
        is_retry = self._kind == TO_GROUP
        await self._watched.admin.send_letter(letter, topic, keys, is_retry=is_retry)

    async def is_there(self, letter: Record, topic: str, key: str) -> bool:
        """True if the topic has a message with this key, so the letter was sent."""
        try:
            found = await self._watched.admin.query(topic, key)
        except NoRouteError:
            return False
        return any(
            key in one.properties.get(props.KEYS, "").split(props.KEY_SEPARATOR) for one in found
        )


class Redrives:
    """The runs, and the folder of their files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def action(self) -> Action:
        """The action of the table."""
        return Action(
            "redrive",
            "Send dead letters again",
            (
                GROUP,
                FIELD,
                Field("target", "To", "choice", True, TO_GROUP, TARGETS),
                Field(
                    "topic", "Topic", chars_max=255, names="topics", only=("target", (TO_TOPIC,))
                ),
                Field(
                    "where",
                    "Where",
                    note="an id, a key, or an expression, such as body.order.id = 7; empty: all",
                ),
                Field("begin", "Stored from", "time", note="UTC; empty: the first one"),
                Field("end", "Stored before", "time", note="UTC; empty: now"),
                Field("rate", "Messages a second", "number", True, "50", least=1, most=RATE_MAX),
                Field("again", "Send again what is unknown, too", "flag"),
            ),
            self.rehearse,
            topics=("topic",),
            groups=("group",),
            typed="group",
            typed_if=lambda values: not 0 < len(ids_in(values["letters"] or "")) <= UNTYPED_MAX,
            prefill=_ticked,
            start=self.start,
        )

    def ledger(self, watched: Watched, values: Values) -> Ledger:
        """The file of a group and a target."""
        target = values["target"]
        if target == TO_TOPIC:
            target += f" {values['topic']}"
        return Ledger(self._folder, watched.name, values["group"], target)

    async def rehearse(self, watched: Watched, values: Values, pins: Pins) -> Plan:
        """The plan of a redrive: the letters to be sent, by topic, and those that can't be."""
        _check(watched, values)
        pins.setdefault("end", values["end"] or now_ms())
        plan = Plan(pins=pins)
        ledger = self.ledger(watched, values)
        await asyncio.to_thread(ledger.read)
        post = _post(watched, values)
        counts: Counter[tuple[str, str]] = Counter()
        refused: Counter[str] = Counter()
        sent_before = open_before = 0
        digest = hashlib.sha256()
        seen: list[Record] = []
        if values["letters"]:
            idents = pins.get("letters") or ids_in(values["letters"])
            wanted = picked(watched, values["group"], idents)
        else:
            wanted = chosen(watched, values, pins["end"], plan.refusals)
        async for letter in wanted:
            digest.update(letter.offset_id.encode())
            if values["letters"]:  # at most LETTERS_MAX
                seen.append(letter)
            state = ledger.states.get(letter.offset_id)
            if state == SENT:
                sent_before += 1
                continue
            if state in (SENDING, UNKNOWN):
                open_before += 1
            wrong = refusal_of(letter, is_retry=values["target"] == TO_GROUP)
            if wrong is None:
                try:
                    counts[origin(letter, values["group"]), await post.topic_for(letter)] += 1
                    continue
                except ClientError as fault:
                    wrong = text_of(fault)
            refused[wrong] += 1
        for (first, topic), count in sorted(counts.items()):
            before = counted(
                count,
                "1 dead letter of %(first)s",
                "%(count)s dead letters of %(first)s",
                first=first,
            )
            plan.changes.append(
                Change(topic, before, Text("%(count)s sent", count=f"{count:,}"), _nothing)
            )
        if plan.changes:
            plan.changes[0] = _bound(plan.changes[0], digest.hexdigest())
            if values["target"] != TO_GROUP:
                plan.topics = {topic for _, topic in counts}
            await _check_targets(watched, plan)
        if values["letters"]:
            pins["letters"] = [one.offset_id for one in seen]
        pins["total"] = counts.total()
        plan.notes += _notes(sent_before, open_before, refused) + _named(seen)
        plan.note("each result is a line of %(path)s", path=ledger.path)
        plan.sentence = counted(
            counts.total(),
            "Send 1 dead letter of %(group)s again",
            "Send %(count)s dead letters of %(group)s again",
            group=values["group"],
        )
        if not counts:
            plan.refuse("no dead letter is to be sent")
        return plan

    def start(self, watched: Watched, values: Values, plan: Plan) -> Run:
        """Begin a run of what a rehearsal showed; Unfit when too many run."""
        running = [one for one in self._runs.values() if one.phase is Phase.RUNNING]
        group = values["group"]
        if any((one.cluster, one.group) == (watched.name, group) for one in running):
            raise Unfit(
                "a redrive of %(group)s runs already; wait for its end, or stop it", group=group
            )
        if len(running) >= RUNNING_MAX:
            raise Unfit(
                "%(count)s redrives run, the limit is %(running_max)s; stop one",
                count=len(running),
                running_max=RUNNING_MAX,
            )
        for ident in [one.ident for one in self._runs.values() if one.phase is not Phase.RUNNING]:
            if len(self._runs) >= RUNS_MAX:
                del self._runs[ident]
        ledger = self.ledger(watched, values)
        total = plan.pins["total"]
        run = Run(watched.name, group, values["target"], total, str(ledger.path))
        self._runs[run.ident] = run
        task = asyncio.create_task(self._drive(watched, values, plan.pins, ledger, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def _drive(
        self, watched: Watched, values: Values, pins: Pins, ledger: Ledger, run: Run
    ) -> None:
        faults: list[str] = []
        if values["letters"]:
            wanted = picked(watched, values["group"], pins["letters"], faults)
        else:
            wanted = chosen(watched, values, pins["end"], faults)
        try:
            await drive(
                wanted,
                _post(watched, values),
                ledger,
                run,
                rate=values["rate"],
                is_retry=values["target"] == TO_GROUP,
                unknown_again=values["again"],
            )
        except (LedgerFull, OSError) as wrong:
            run.phase, run.why = Phase.STOPPED, Text("the file of results: %(wrong)s", wrong=wrong)
        finally:
            if faults and run.why is None:
                run.why = joined("; ", faults)
            run.finished.set()

    def runs(self, cluster: str) -> list[Run]:
        """The runs of a cluster, the last one first."""
        return [one for one in reversed(self._runs.values()) if one.cluster == cluster]

    def run(self, ident: str) -> Run | None:
        """A run by its id."""
        return self._runs.get(ident)

    async def close(self) -> None:
        """End all runs; their files say how far they came."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def chosen(
    watched: Watched, values: Values, end_ms: int, faults: list[str]
) -> AsyncIterator[Record]:
    """The dead letters that the form chooses by an expression and a time; what could not be read is
    noted in `faults`."""
    topic = DLQ_PREFIX + values["group"]
    last = Progress()
    async for one in search(
        watched.reader,
        topic,
        values["begin"] or 0,
        end_ms,
        _condition(values),
        hits_max=LETTERS_MAX,
        scanned_max=SCANNED_MAX,
    ):
        if isinstance(one, Progress):
            last = one
        else:
            yield one
    faults += last.faults
    if last.why is not None:
        faults.append(Text("%(why)s; choose a shorter time", why=last.why))


def _condition(values: Values) -> Predicate | None:
    words = sought_by(values["where"] or "")
    if words.key:
        return named(words.key)
    if not words.expression:
        return None
    try:
        return predicate(words.expression, fields=True, is_whole=True)
    except SqlError as wrong:
        raise Unfit(text_of(wrong)) from None


def _check(watched: Watched, values: Values) -> None:
    if values["target"] == TO_TOPIC and not values["topic"]:
        raise Unfit(Text("Topic is missing; give the topic to send the dead letters to"))
    if values["target"] != TO_TOPIC and values["topic"]:
        raise Unfit(
            "Topic is for %(to_topic)s only; leave it empty, or choose %(to_topic)s",
            to_topic=Text(TO_TOPIC),
        )
    if values["letters"] and (values["where"] or values["begin"] or values["end"]):
        raise Unfit(
            Text(
                "Letters are given, and Where, Stored from or Stored before, too; clear one of them"
            )
        ).at("letters")
    _condition(values)


async def _ticked(watched: Watched, query: Mapping[str, str]) -> dict[str, str]:
    """Unfit for a list that was sent without a tick: a form without letters is about all."""
    if query.get("ticked") and not query.get("letters"):
        raise Unfit(
            Text(
                "no dead letter is ticked; go back and tick some, or leave Letters empty for all "
                "that the rest chooses"
            )
        ).at("letters")
    return {}


def _named(letters: list[Record]) -> list[str]:
    """The letters that were given by their ids, for people."""
    more = len(letters) - TOLD_MAX
    rest = [counted(more, "and 1 more", "and %(count)s more")] if more > 0 else []
    return [*map(_told, letters[:TOLD_MAX]), *rest]


def _told(letter: Record) -> Text:
    """A letter in a preview. Its body is not in it, as that may be hidden from the visitor."""
    keys = letter.properties.get(props.KEYS, "")
    return Text(
        "dead letter %(id)s: keys %(keys)s, stored %(time)s",
        id=id_of(letter),
        keys=keys[:KEYS_CHARS_MAX] + ("…" if len(keys) > KEYS_CHARS_MAX else "") or Text("none"),
        time=time_text(letter.store_ms),
    )


def _notes(sent_before: int, open_before: int, refused: Counter[str]) -> list[str]:
    """What is not sent, and what may not be."""
    notes: list[str] = []
    if sent_before:
        notes.append(
            counted(
                sent_before,
                "1 was sent before and is skipped",
                "%(count)s were sent before and are skipped",
            )
        )
    if open_before:
        notes.append(
            counted(
                open_before,
                "1 may have been sent before: its key is looked for",
                "%(count)s may have been sent before: their keys are looked for",
            )
        )
    return notes + [
        counted(count, "1 is refused: %(why)s", "%(count)s are refused: %(why)s", why=why)
        for why, count in refused.most_common(20)
    ]


async def _check_targets(watched: Watched, plan: Plan) -> None:
    """Refuse topics that are not there: a send would make them."""
    for topic in {one.place for one in plan.changes}:
        try:
            await masters_of(watched, topic)
        except Unfit as wrong:
            plan.refusals.append(text_of(wrong))


def _post(watched: Watched, values: Values) -> Network:
    return Network(watched, values["group"], values["target"], values["topic"] or "")


def _bound(change: Change, digest: str) -> Change:
    return Change(change.place, change.before, change.after, change.do, bound=digest)


async def _nothing() -> None:
    """The changes of a rehearsal are made by its run."""
