"""The metrics of several daemons of one kind, added up: text to text, and how they are fetched."""

import asyncio
import logging
import re
from collections.abc import Mapping

import aiohttp

from .bearer import Bearer

log = logging.getLogger(__name__)

FETCH_SECONDS = 5.0
# Of these gauges the largest counts: each member has the same value, or the value is a time.
LARGEST = re.compile(
    r"rocketmq_broker_permission$|rocketmq_topic_number$|rocketmq_consumer_group_number$"
    r"|aerobee_build_info$|aerobee_group_subscriptions_differ$|.*_milliseconds$|.*_ratio$"
)


def added_up(texts: Mapping[str, str], name: str) -> str:
    """One text of metrics from those of members by name. A label with the name of a member has
    `name` instead. Counters and histograms are added, and gauges but those of LARGEST."""
    heads: dict[str, str] = {}
    kinds: dict[str, str] = {}
    values: dict[str, dict[str, float]] = {}
    for member, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                _, word, family, rest = (*line.split(" ", 3), "")[:4]
                if word == "HELP":
                    heads.setdefault(family, line)
                elif word == "TYPE":
                    kinds.setdefault(family, rest)
                continue
            key, _, value = line.rpartition(" ")
            if not key:
                continue
            key = key.replace(f'="{member}"', f'="{name}"')
            found = values.setdefault(family, {})
            known = found.get(key)
            if known is None:
                found[key] = float(value)
            elif kinds.get(family) == "gauge" and LARGEST.match(family):
                found[key] = max(known, float(value))
            else:
                found[key] = known + float(value)
    lines = []
    for family, head in heads.items():
        lines += [head, f"# TYPE {family} {kinds.get(family, 'untyped')}"]
        lines += [f"{key} {value}" for key, value in values.get(family, {}).items()]
    return "\n".join([*lines, ""])


def total(text: str, family: str) -> float:
    """The sum of all values of a family."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{family}{{", f"{family} "))
    )


async def fetched(pages: Mapping[str, str], token: bytes = b"") -> dict[str, str]:
    """The metrics of the members that answer, by name; `pages` are the URLs of their HTTP
    endpoints, which may ask for the token."""
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=Bearer(token).headers) as session:
        texts = await asyncio.gather(*(_one(session, url) for url in pages.values()))
    return {name: text for name, text in zip(pages, texts, strict=True) if text}


async def _one(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(f"{url}metrics") as answer:
            return await answer.text() if answer.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError, OSError) as wrong:
        log.info("%smetrics doesn't answer: %s", url, wrong)
        return ""
