"""Which names the console answers to.

The Host list keeps other sites from reaching a console on the loopback by a name that they point
there (DNS rebinding).
"""

from collections.abc import Iterable

from aiohttp import web

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class HostList:
    """The names by which browsers may ask for pages: those of the loopback and `more`."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = {*LOOPBACK_NAMES, *(name.lower() for name in more)}

    def check(self, request: web.Request) -> None:
        """HTTPMisdirectedRequest for another name."""
        given = request.headers.getall("Host", [])
        name = given[0].lower() if len(given) == 1 else ""
        host, colon, port = name.rpartition(":")
        if colon and (port.isdecimal() or not port):
            name = host
        if name not in self._names:
            raise web.HTTPMisdirectedRequest(
                text=f"the console does not answer to this Host; it answers to "
                f"{', '.join(sorted(self._names))}: add yours with --host"
            )
