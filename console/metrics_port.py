"""A port with metrics for Prometheus alone: /metrics, and no other path."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from .endpoint import STOP_SECONDS
from .metrics_text import MetricsText

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Write = Callable[[], Awaitable[list[bytes]]]


class MetricsPort:
    """`write` gives the text in chunks. `check` refuses a request by an HTTP error. `setting` is
    the name of the option with the port."""

    def __init__(
        self,
        address: str,
        port: int,
        write: Write,
        *,
        setting: str,
        check: Callable[[web.Request], None] = lambda _: None,
    ) -> None:
        self.address = address
        self.port = port
        self._text = MetricsText(write, HEADERS)
        self._setting = setting
        self._check = check
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The URL for Prometheus to scrape."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    async def start(self) -> None:
        """Listen; OSError with the cure when the address or the port is not available."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.address, self.port).start()
        except OSError as wrong:
            await self.stop()
            reason = wrong.strerror or str(wrong)
            raise OSError(
                wrong.errno,
                f"can't serve metrics on {self.address}:{self.port}: {reason}; correct "
                f"{self._setting}",
            ) from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        self._text.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        return await self._text.answer(request)
