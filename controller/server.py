"""A controller: connects rules, engine and request handlers, and owns the port and the clock.

    controller = Controller(ControllerConfig(listen_port=0, controller_store_path="state"))
    await controller.start()
    ...
    await controller.stop()

Brokers in controller mode report the positions of their logs each second. When the master of a name
is dead, the controller elects another broker that has every acknowledged message.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path

from ..conf import log_levels
from ..conf.users import signing
from ..protocol import codes
from ..protocol.aio.audit import AuditLog, open_audit_log
from ..protocol.aio.clocks import monotonic_ms
from ..protocol.aio.connection import Connection
from ..protocol.aio.guard import Guard, Refusals, protected
from ..protocol.aio.peers import Peers
from ..protocol.aio.server import Server, table
from ..protocol.aio.slices import Slices
from ..protocol.aio.tls import Tls, client_context
from ..protocol.bodies.controller import SyncStateSet
from ..protocol.headers.controller import ElectMasterResponse, NotifyRoleChanged
from . import rules
from .config import ETCD, ControllerConfig
from .engine import Engine, Leading
from .etcd import EtcdEngine
from .etcd_gateway import EtcdGateway
from .handlers import Handlers
from .journal import FileEngine
from .live import CLOSED_MS, LiveBrokers
from .replicas import Groups
from .rules import Decision

log = logging.getLogger(__name__)

NOTICE_SECONDS = 3.0  # to send a broker the name of its new master
NOTICES_MAX = 1_000  # tasks in progress
NO_USER = (
    "the request has no AccessKey, and this controller serves it only when it is signed with a "
    "user's name and password"
)


class Controller:
    """One controller. Create it anywhere; `start` and `stop` it inside a running loop.

    `clock` returns ms; a parameter so that tests can move time.
    """

    def __init__(
        self, config: ControllerConfig | None = None, clock: Callable[[], int] = monotonic_ms
    ) -> None:
        config = config or ControllerConfig()
        self.port = 0
        self.live = LiveBrokers(clock)
        self.engine = _engine(config, clock)
        self._handlers = Handlers(self.engine, self.live, config, self._notify)
        self.guard = _guard(config, clock) if config.authentication_enabled else None
        self.audit: AuditLog | None = None
        self._server: Server | None = None
        self._peers: Peers | None = None
        self._scan_timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def config(self) -> ControllerConfig:
        """The current settings; a request may have changed them."""
        return self._handlers.config

    @property
    def groups(self) -> Groups:
        """The replicas of each broker name; empty while another controller leads."""
        return self.engine.groups

    @property
    def elections(self) -> int:
        """The number of masters elected since the start."""
        return self._handlers.elections

    @property
    def address(self) -> str:
        """The controller's address for brokers, as "host:port"."""
        own = self.config.peers.get(self.config.controller_dleger_self_id)
        if own is not None and self.config.controller_type == ETCD:
            return own
        return f"{self.config.bind_address}:{self.port}"

    @property
    def addresses(self) -> str:
        """The addresses of all controllers, with ; between them."""
        return ";".join(self._handlers.peers.values())

    async def start(self) -> None:
        """Read the state and listen.

        StoreError if the state can't be read; OSError with a readable sentence for a used port.
        """
        config = self.config
        if config.log_level:
            log_levels.use(config.log_level)
        self._peers = _open_peers(config)
        self.engine.open()
        try:
            server = Server(
                on_lost=self._lost,
                idle_seconds=config.server_channel_max_idle_time_seconds,
                tls=Tls(
                    config.tls_server_mode,
                    config.tls_server_cert_path,
                    config.tls_server_key_path,
                ),
            )
            self.slices = Slices(server.scheduler)
            self.audit = open_audit_log(config.audit_log, "controller")
            rows = protected(table(self._handlers.rows()), self.guard, self.audit)
            self.port = await server.listen(config.bind_address, config.listen_port, rows)
        except BaseException:
            await self.engine.close()
            raise
        own_id = config.controller_dleger_self_id
        peers = config.peers if config.controller_type == ETCD else {}
        self._handlers.peers = peers | {own_id: self.address}
        self._server = server
        self.engine.begin(Leading(own_id, self.address), self.live.begin)
        self._schedule_scan()
        log.info("controller listens on %s, state %s", self.address, self.engine.place)

    async def stop(self) -> None:
        """Close the port, all connections and the state."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        if self._server is not None:
            await self._server.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._handlers.finish()
        if self._peers is not None:
            await self._peers.close()
        await self.engine.close()
        if self.audit is not None:
            await self.audit.close()

    async def scan(self) -> None:
        """Elect a master for each name whose master is dead while another member is alive."""
        self.live.forget_dead()
        if not self.engine.is_leader:
            return
        for name in rules.to_elect(self.groups, self.live):
            await self._handlers.elect_for(name)

    def _schedule_scan(self) -> None:
        seconds = self.config.scan_not_active_broker_interval / 1_000
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan_round)

    def _scan_round(self) -> None:
        self._schedule_scan()
        self._begin(self.scan())

    def _lost(self, connection: Connection) -> None:
        for cluster, name, broker_id in self.live.lost(connection):
            log.warning("broker %s:%d of %s closed its connection", name, broker_id, cluster)
            asyncio.get_running_loop().call_later(
                (CLOSED_MS + 1) / 1_000, lambda: self._begin(self.scan())
            )

    def _notify(self, name: str, decision: Decision) -> None:
        """Tell the live members of a name which broker is their new master."""
        header, group = decision.header, self.groups.get(name)
        assert isinstance(header, ElectMasterResponse)
        if not self.config.notify_broker_role_changed or group is None:
            return
        notice = NotifyRoleChanged(
            header.master_address,
            header.master_epoch,
            header.sync_state_set_epoch,
            header.master_broker_id,
        )
        body = SyncStateSet(group.sync_set, group.sync_set_epoch).encode()
        for broker_id, member in group.members.items():
            if self.live.is_alive((group.cluster, name, broker_id)):
                self._begin(self._send(member.address, notice, body))

    async def _send(self, address: str, notice: NotifyRoleChanged, body: bytes) -> None:
        assert self._peers is not None, "the controller is not started"
        try:
            await self._peers.oneway(address, codes.NOTIFY_BROKER_ROLE_CHANGED, notice, body)
        except ConnectionError as wrong:
            log.warning("can't tell %s of its new master: %s", address, wrong)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        if len(self._tasks) >= NOTICES_MAX:
            log.warning(
                "%d tasks are at work, which is the limit; one more is dropped", NOTICES_MAX
            )
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


def _open_peers(config: ControllerConfig) -> Peers:
    """The connections to brokers, with TLS and signatures as the settings ask for."""
    tls = None
    if config.speaks_tls:
        tls = client_context(
            auth_server=config.tls_client_auth_server,
            trust_cert_path=config.tls_client_trust_cert_path,
        )
    sign = signing(config.inner_client_authentication_credentials)
    return Peers(connect_seconds=NOTICE_SECONDS, tls=tls, sign=sign)


def _guard(config: ControllerConfig, now_ms: Callable[[], int]) -> Guard:
    """Brokers and administrators sign, as they do at brokers; each user may do everything.

    RocketMQ's controllers have no access control, and its brokers sign all their requests once they
    have innerClientAuthenticationCredentials. Reading the members of a broker name needs no
    signature.
    """
    users = config.users()
    if not users:
        log.warning(
            "access control is on and there is no user, so no broker can join; name one in "
            "initAuthenticationUser"
        )
    return Guard(
        users.get,
        lambda *_: None,
        Refusals(now_ms),
        cluster="",
        no_user=NO_USER,
        is_limited=False,
        all_sign=False,
    )


def _engine(config: ControllerConfig, clock: Callable[[], int]) -> Engine:
    if config.controller_type == ETCD:
        return EtcdEngine(EtcdGateway(config), config.controller_etcd_prefix, clock)
    return FileEngine(Path(config.controller_store_path).expanduser())
