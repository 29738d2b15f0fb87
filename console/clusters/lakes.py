"""Running lakes (`aerobee lake run`): the console reads their status pages when a visitor asks."""

import asyncio
from collections.abc import Sequence

import aiohttp
import msgspec

from ...lake.progress import Totals
from ..bearer import Bearer
from ..texts import Text, TextError, text_of

ANSWER_SECONDS = 5.0  # of one lake, while a visitor waits
ANSWER_BYTES_MAX = 32 << 20  # of one status; a table has about 1 KiB
LAKES_MAX = 32  # of a cluster


class LakeTable(msgspec.Struct, frozen=True):
    """A table as the lake that writes it tells."""

    topic: str
    table: str
    lag_seconds: float
    lag_messages: int
    in_table: Totals
    failure: str = ""
    last_failure: str = ""
    last_failure_ms: int = 0
    upkeep_failure: str = ""
    last_upkeep_ms: int = 0


class LakeStatus(msgspec.Struct, frozen=True, tag_field="daemon", tag="lake"):
    """The status of a lake. `failure` is why it can't read its settings, or can't
    look for topics."""

    tables: list[LakeTable]
    version: str = ""
    failure: str = ""


class Lakes:
    """The lakes of a cluster, by the addresses of their HTTP ports, as http://127.0.0.1:8083."""

    def __init__(self, urls: Sequence[str] = (), token: bytes = b"") -> None:
        self.urls = tuple(urls)
        self._headers = Bearer(token).headers
        self._session: aiohttp.ClientSession | None = None

    async def statuses(self) -> tuple[dict[str, LakeStatus], dict[str, Text]]:
        """The statuses by address, and why others gave none."""
        found: dict[str, LakeStatus] = {}
        faults: dict[str, Text] = {}

        async def ask(url: str) -> None:
            why: str
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    found[url] = await self._ask(url)
                return
            except TimeoutError:
                why = Text("no answer within %(seconds)s s", seconds=f"{ANSWER_SECONDS:g}")
            except msgspec.DecodeError as wrong:
                why = Text("its answer is no status of a lake: %(why)s", why=wrong)
            except (aiohttp.ClientError, OSError, _NoStatus) as wrong:
                why = text_of(wrong)
            faults[url] = Text("the lake at %(url)s: %(why)s", url=url, why=why)

        await asyncio.gather(*map(ask, self.urls))
        return {url: found[url] for url in self.urls if url in found}, faults

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, url: str) -> LakeStatus:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        async with self._session.get(
            f"{url}/status", headers=self._headers, allow_redirects=False
        ) as answer:
            if answer.status == 401:
                raise _NoStatus(
                    Text("it asks for its httpToken; start the console with --lake-token")
                )
            if answer.status != 200:
                raise _NoStatus("it answers with status %(status)s of HTTP", status=answer.status)
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    raise _NoStatus(
                        "its status has more than %(limit)s bytes", limit=f"{ANSWER_BYTES_MAX:,}"
                    )
        return msgspec.json.decode(body, type=LakeStatus)


class _NoStatus(TextError):
    """An answer that is no status."""
