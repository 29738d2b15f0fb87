"""Look-up of name servers by HTTP: a page whose first line lists their addresses.

RocketMQ's TopAddressing. The page is `http://DOMAIN:8080/rocketmq/nsaddr`; Java clients read DOMAIN
from `rocketmq.namesrv.domain` and the last path segment from `rocketmq.namesrv.domain.subgroup`.
Here both are environment variables, or the whole URL is given in place of addresses.
"""

import os

from ...protocol.errors import reason_of
from ..errors import UnreachableError

DOMAIN, SUBGROUP = "ROCKETMQ_NAMESRV_DOMAIN", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"
DEFAULT_PORT = 8080
DEFAULT_SUBGROUP = "nsaddr"
SECONDS = 3.0  # for the whole page
PAGE_BYTES_MAX = 16_384
SCHEMES = ("http://", "https://")


def url_of_environment() -> str | None:
    """The page that the environment names; None when it names no domain."""
    domain = os.environ.get(DOMAIN)
    if not domain:
        return None
    port = "" if ":" in domain else f":{DEFAULT_PORT}"
    return f"http://{domain}{port}/rocketmq/{os.environ.get(SUBGROUP) or DEFAULT_SUBGROUP}"


async def fetch(url: str) -> str:
    """The first line of the page; UnreachableError says what came instead."""
    import aiohttp  # by clients that look up alone: it takes longer to load than all the rest

    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise _wrong(url, f"it answered {answer.status}")
            page = await answer.content.read(PAGE_BYTES_MAX + 1)
    except TimeoutError:
        raise _wrong(url, f"no answer within {SECONDS:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as wrong:
        raise _wrong(url, reason_of(wrong)) from wrong
    if len(page) > PAGE_BYTES_MAX:
        raise _wrong(url, f"its page is longer than {PAGE_BYTES_MAX} bytes")
    lines = page.decode(errors="replace").strip().splitlines()
    if not lines:
        raise _wrong(url, "its page is empty")
    return lines[0].strip()


def _wrong(url: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"name servers can't be looked up at {url}: {why}; the first line there is to be "
        f"host:port;host:port. Check the domain, or give addresses (or NAMESRV_ADDR) instead"
    )
