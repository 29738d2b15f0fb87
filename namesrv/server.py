"""A name server: the wiring of routes, key-value config and requests, its port and its clock.

    server = NameServer(NamesrvConfig(listen_port=0))
    await server.start()
    ...
    await server.stop()

Name servers don't know of each other: every broker registers with each of them.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from ..conf import log_levels
from ..conf.users import signing
from ..protocol import codes
from ..protocol.aio.audit import AuditLog, open_audit_log
from ..protocol.aio.clocks import monotonic_ms
from ..protocol.aio.connection import Connection
from ..protocol.aio.guard import protected
from ..protocol.aio.peers import Peers
from ..protocol.aio.server import Server, table
from ..protocol.aio.slices import Slices
from ..protocol.aio.tls import Tls
from ..protocol.headers.namesrv import MinBrokerIdChange
from .access import Access
from .config import NamesrvConfig
from .handlers import Handlers
from .master_changes import MasterChanges
from .registration import Notice, Removed
from .routes import RouteTable
from .settings import Settings

log = logging.getLogger(__name__)

FIRST_SCAN_SECONDS = 0.005
NOTICE_SECONDS = 0.3  # to reach a broker with a notice
NOTICES_MAX = 1_000  # on their way at once; more are dropped, as oneway requests may be


class NameServer:
    """One name server. Create it anywhere; `start` and `stop` it inside a running loop.

    `clock` gives ms and is a parameter so that tests can move time.
    """

    def __init__(
        self, config: NamesrvConfig | None = None, clock: Callable[[], int] = monotonic_ms
    ) -> None:
        """ValueError when the key-value config or the users that the settings name can't be
        read."""
        config = config or NamesrvConfig()
        self.routes = RouteTable()
        self.settings = Settings(
            Path(config.kv_config_path).expanduser() if config.kv_config_path else None
        )
        is_closed = config.authentication_enabled
        self.access = Access(config, clock) if is_closed else None
        self.audit: AuditLog | None = None
        self.port = 0
        self._clock = clock
        self._handlers = Handlers(self.routes, self.settings, config, clock, self._notify)
        self._server: Server | None = None
        self._peers: Peers | None = None
        self._scan_timer: asyncio.TimerHandle | None = None
        self._notices: dict[asyncio.Task[None], None] = {}

    @property
    def config(self) -> NamesrvConfig:
        """The settings as they are now; a request may have changed them."""
        return self._handlers.config

    @property
    def master_changes(self) -> MasterChanges:
        """The count of changes of a broker name's master while the earlier master was alive."""
        return self._handlers.master_changes

    @property
    def address(self) -> str:
        """The address that the name server listens on, as "host:port"."""
        return f"{self.config.bind_address}:{self.port}"

    async def start(self) -> None:
        """Listen. OSError with a readable sentence if the port can't be had."""
        config = self.config
        if config.log_level:
            log_levels.use(config.log_level)
        server = Server(
            on_lost=self._lost,
            idle_seconds=config.server_channel_max_idle_time_seconds,
            tls=Tls(
                config.tls_server_mode, config.tls_server_cert_path, config.tls_server_key_path
            ),
        )
        self.slices = self._handlers.slices = Slices(server.scheduler)
        self.audit = open_audit_log(config.audit_log, "name server")
        guard = None if self.access is None else self.access.guard
        rows = protected(table(self._handlers.rows()), guard, self.audit)
        what = "a name server's listenPort; `aerobee up` takes --namesrv-port"
        self.port = await server.listen(config.bind_address, config.listen_port, rows, what=what)
        self._server = server
        self._schedule_scan(FIRST_SCAN_SECONDS)
        log.info("name server listens on %s", self.address)

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        if self._server is not None:
            await self._server.stop()
        for task in list(self._notices):
            task.cancel()
        if self._peers is not None:
            await self._peers.close()
        if self.audit is not None:
            await self.audit.close()

    def scan(self) -> Removed:
        """Forget the brokers that were silent for too long and close their connections."""
        removed = self.routes.expire(self._clock())
        self._tell(removed, "silent for too long")
        for connection in removed.connections:
            assert isinstance(connection, Connection)
            connection.close()
        return removed

    def _schedule_scan(self, seconds: float) -> None:
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan_round)

    def _scan_round(self) -> None:
        self._schedule_scan(self.config.scan_not_active_broker_interval / 1_000)
        if self.access is not None:
            self.access.refresh()
        self.scan()

    def _lost(self, connection: Connection) -> None:
        self._tell(self.routes.lost(connection), "its connection closed")

    def _tell(self, removed: Removed, why: str) -> None:
        for cluster, addr in removed.addresses:
            log.warning("broker %s of cluster %s is gone: %s", addr, cluster, why)
        for notice in removed.notices:
            self._notify(notice)

    def _notify(self, notice: Notice) -> None:
        if not self.config.notify_min_broker_id_changed:
            return
        if self._peers is None:
            sign = signing(self.config.inner_client_authentication_credentials)
            self._peers = Peers(connect_seconds=NOTICE_SECONDS, sign=sign)
        header = MinBrokerIdChange(
            min_broker_id=notice.min_broker_id,
            min_broker_addr=notice.min_broker_addr,
            offline_broker_addr=notice.offline_addr,
            ha_broker_addr=notice.ha_addr,
        )
        for addr in notice.targets:
            if len(self._notices) >= NOTICES_MAX:
                log.warning("not telling %s: %d notices are on their way", addr, NOTICES_MAX)
                return
            task = asyncio.get_running_loop().create_task(self._send(self._peers, addr, header))
            self._notices[task] = None
            task.add_done_callback(self._notices.pop)

    async def _send(self, peers: Peers, addr: str, header: MinBrokerIdChange) -> None:
        try:
            await peers.oneway(addr, codes.NOTIFY_MIN_BROKER_ID_CHANGE, header)
        except ConnectionError as wrong:
            log.warning("can't tell %s of broker id %s: %s", addr, header.min_broker_id, wrong)
