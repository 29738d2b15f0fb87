"""The pages about brokers: their list, how some of them differ, and one broker."""

import asyncio
from collections.abc import Mapping

from ...client.admin.admin import Admin
from ...client.errors import ClientError
from ...protocol.codec import java_properties
from ..clusters.samples import BrokerSample
from ..texts import Text
from . import answers, broker_settings
from .broker_settings import SETTINGS_MAX
from .pages_cluster import broker_fact, drawn, sorted_brokers
from .request_context import BadQuery, NotFound, RequestContext, cut_at

COMPARED_MAX = 10  # brokers at once, each a column and a request
IDS_MAX = 1 << 40


async def brokers(context: RequestContext) -> answers.Brokers:
    """All brokers, and the settings in which some of them differ: those of `compare`, each as
    name:id, or all masters."""
    chosen, faults = _chosen(context)
    shown = dict([*chosen.items()][:COMPARED_MAX])
    told, unanswered = await _settings(context, shown)
    differing = broker_settings.differing(shown, dict(sorted(told.items())))
    rows = _containing(context.text("q"), differing)
    return {
        "brokers": [broker_fact(one) for one in sorted_brokers(context)],
        "faults": [*faults, *unanswered],
        "compared": [
            {
                "key": key,
                "broker": broker_fact(one),
                "figures": _figures(one),
                "is_told": key in told,
            }
            for key, one in shown.items()
        ],
        "differing": rows[:SETTINGS_MAX],
        "differing_cut": cut_at(SETTINGS_MAX, len(rows)),
        "compared_max": COMPARED_MAX,
        "cut": cut_at(COMPARED_MAX, len(chosen)),
    }


async def broker(context: RequestContext) -> answers.Broker:
    """One broker: its report, its settings with their defaults, its slaves."""
    name, number = context.required("name"), context.number("id", 0, 0, IDS_MAX)
    found = context.watched.collector.brokers.get((name, number))
    if found is None:
        raise NotFound(
            "no broker %(name)s with id %(number)s is known; see the list of brokers",
            name=name,
            number=number,
        )
    told, faults = await _settings(context, {name: found})
    slaves, away = await context.ask([found], context.watched.admin.ha_status)
    settings = told.get(name, {})
    defaults_of, is_its_version = broker_settings.version_of_defaults(found)
    return {
        "broker": broker_fact(found),
        "figures": _figures(found),
        "runtime": broker_settings.report_of(_first(found.runtime)),
        "runtime_cut": cut_at(SETTINGS_MAX, len(found.runtime)),
        "settings": broker_settings.settings_of(found, _first(settings)),
        "settings_cut": cut_at(SETTINGS_MAX, len(settings)),
        "defaults_of": defaults_of,
        "is_its_version": is_its_version,
        "ha": slaves.get(name),
        "faults": [*dict.fromkeys([*faults, *away.values()])],
        "history": {way: drawn(context, (way, name, number)) for way in ("in", "out")},
    }


def _chosen(context: RequestContext) -> tuple[dict[str, BrokerSample], list[str]]:
    """The brokers to compare by their keys, and a fault for each that is not known."""
    wanted = context.texts("compare")
    if not wanted:
        return {_key(one): one for one in context.masters()}, []
    known = context.watched.collector.brokers
    found: dict[str, BrokerSample] = {}
    faults: list[str] = []
    for text in wanted:
        name, _, number = text.rpartition(":")
        if not (name and number.isascii() and number.isdecimal() and len(number) < 20):
            raise BadQuery(
                "compare is %(text)s; give the name and the id of a broker, such as broker-a:0, "
                "and one such parameter for each",
                text=f"{text[:160]!r}",
            )
        one = known.get((name, int(number)))
        if one is not None:
            found[_key(one)] = one
        elif len(faults) < COMPARED_MAX:
            faults.append(
                Text(
                    "no broker %(name)s with id %(number)s is known; see the list of brokers",
                    name=name[:160],
                    number=number,
                )
            )
    return found, faults


def _key(one: BrokerSample) -> str:
    return f"{one.name}:{one.broker_id}"


async def _settings(
    context: RequestContext, brokers: Mapping[str, BrokerSample]
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The settings that brokers tell, by their keys, and why others tell none."""
    admin = context.watched.admin

    async def settings(address: str) -> dict[str, str]:
        return await _settings_at(admin, address)

    # Master and slaves have one name, and `ask` answers by name.
    asked = await asyncio.gather(*(context.ask([one], settings) for one in brokers.values()))
    told = {
        key: found[one.name]
        for (key, one), (found, _) in zip(brokers.items(), asked, strict=True)
        if one.name in found
    }
    return told, [why for _, faults in asked for why in faults.values()]


async def _settings_at(admin: Admin, address: str) -> dict[str, str]:
    try:
        return java_properties.parse(await admin.broker_config(address))
    except ValueError as wrong:
        told = Text(
            "the settings of %(address)s can't be read: %(wrong)s; look at the broker's log",
            address=address,
            wrong=wrong,
        )
        raise ClientError(told) from None


def _containing(q: str, rows: list[answers.Differing]) -> list[answers.Differing]:
    """The rows with the text in their name or in a value."""
    wanted = q.lower()
    return [
        row
        for row in rows
        if any(
            wanted in text.lower() for text in (row["name"], *filter(None, row["values"].values()))
        )
    ]


def _first(values: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(values.items())[:SETTINGS_MAX])


def _figures(one: BrokerSample) -> answers.BrokerFigures:
    now, morning = (
        _whole(one, name) for name in ("msgPutTotalTodayNow", "msgPutTotalTodayMorning")
    )
    return {
        "started_ms": _whole(one, "bootTimestamp"),
        "stored_today": None if now is None or morning is None else max(0, now - morning),
        "put_ms": broker_settings.put_ms(one),
    }


def _whole(one: BrokerSample, name: str) -> int | None:
    text = one.runtime.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
