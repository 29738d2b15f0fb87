"""A proxy: connects the port of gRPC, the client of the cluster, and the RPCs between them.

proxy = Proxy(ProxyConfig(namesrv_addr="127.0.0.1:9876"))
await proxy.start()
...
await proxy.stop()
"""

import asyncio
import logging
from collections.abc import Callable

from ..client.base.identity import now_ms
from ..client.base.security import Security
from ..client.cluster.cluster import Cluster, every
from ..conf import log_levels
from ..protocol.aio.audit import AuditLog, open_audit_log
from ..protocol.aio.connection import host_text
from ..protocol.aio.tls import client_context
from .access.access import Access
from .calls import table
from .calls.service import Service
from .calls.spans import ProxySpans
from .calls.telemetry import tell_changes
from .handles.handover import Handover
from .handles.keeper import Keeper
from .handles.popped import Popped
from .http2 import health, reflection
from .http2.balance import Worker
from .http2.connection import Shared
from .http2.listener import GrpcTls, Listener
from .messages import definitions
from .messages.transactions import RecentTransactions
from .routes.brokers import Brokers
from .routes.topics import Topics
from .settings.config import ProxyConfig
from .telemetry.clients import Clients
from .telemetry.commands import Commands
from .telemetry.membership import Membership

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
TELL_SECONDS = 5.0


class Proxy:
    """One proxy. Create it anywhere; `start` and `stop` it inside a running loop.

    `clock` gives the brokers' time in ms; a parameter so that tests can move it. A `worker` shares
    its port with others.
    """

    def __init__(
        self,
        config: ProxyConfig,
        clock: Callable[[], int] = now_ms,
        worker: Worker | None = None,
    ) -> None:
        self.config = config
        self._worker = worker
        self._handover: Handover | None = None
        self._clock = clock
        self._listener: Listener | None = None
        self._service: Service | None = None
        self.shared = Shared({}, config.grpc_max_inbound_message_size)
        self.spans = ProxySpans() if config.spans_grpc_exporter_target else None
        self._cluster: Cluster | None = None
        self._audit: AuditLog | None = None
        self._upkeep: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port if self._listener is not None else 0

    @property
    def address(self) -> str:
        """The address that the proxy listens on, as "host:port"."""
        return host_text((self.config.bind_address, self.port))

    @property
    def calls_under_way(self) -> int:
        """Calls that have not ended, streams as well."""
        return sum(len(connection.calls) for connection in self.shared.connections)

    @property
    def service(self) -> Service:
        """The parts of the started proxy."""
        assert self._service is not None, "the proxy is not started"
        return self._service

    async def start(self) -> None:
        """Listen; OSError with a readable sentence for a used port or unusable certificates."""
        config = self.config
        if config.log_level:
            log_levels.use(config.log_level)
        tls = GrpcTls(config.tls_server_mode, config.tls_cert_path, config.tls_key_path)
        cluster = Cluster(config.namesrv_addr or None, security=_security(config))
        service = self._connect(cluster)
        self._audit = service.access.audit = open_audit_log(config.audit_log, "proxy")
        methods = table.methods(service) | health.methods([definitions.SERVICE])
        methods |= reflection.methods()
        shared = self.shared = Shared(
            methods,
            config.grpc_max_inbound_message_size,
            config.long_polling_reserve_time_in_millis / 1_000,
        )
        listener = Listener(
            shared,
            tls,
            idle_seconds=config.grpc_client_idle_time_mills / 1_000,
            grace_seconds=config.grpc_shutdown_time_seconds,
            balancers=config.balancers(),
        )
        self._listener, self._service, self._cluster = listener, service, cluster
        try:
            await listener.start(config.bind_address, config.grpc_server_port, self._worker)
        except BaseException:
            await cluster.close()
            raise
        cluster.serve(service.commands.rows())
        cluster.start()
        service.keeper.start()
        if self._worker is not None:
            self._handover = Handover(self._worker, service.keeper)
            await self._handover.start()
        self._upkeep = [
            asyncio.create_task(every(SWEEP_SECONDS, self._sweep, "looking after clients")),
            asyncio.create_task(every(TELL_SECONDS, self._tell, "telling changed settings")),
        ]
        log.info("the proxy listens on %s", self.address)

    async def stop(self) -> None:
        """Let calls under way end, give unfinished messages back, leave the brokers."""
        if self._listener is None or self._service is None or self._cluster is None:
            return
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        for client in self._service.clients:
            if client.streams:
                self._service.commands.reconnect(client)
            for stream in client.streams:
                stream.stop_reading()
        await self._listener.stop()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        if self._handover is not None:
            await self._handover.stop()
        await self._service.keeper.stop()
        await self._service.topics.close()
        await self._service.access.close()
        await self._service.membership.close()
        await self._cluster.close()
        if self._audit is not None:
            await self._audit.close()

    def _connect(self, cluster: Cluster) -> Service:
        config = self.config
        brokers = Brokers(cluster, self._clock)
        topics = Topics(brokers, config)
        popped = Popped(brokers, topics)
        recent = RecentTransactions(config.transaction_data_expire_millis / 1_000)
        clients = Clients(
            self._gone,
            expire_seconds=config.channel_expired_timeout / 1_000,
            grace_seconds=config.client_grace_millis / 1_000,
        )
        return Service(
            config,
            brokers,
            topics,
            popped,
            Keeper(brokers, topics, popped, config),
            clients,
            Commands(
                brokers,
                clients,
                recent,
                seconds=config.grpc_proxy_relay_request_timeout_in_seconds,
            ),
            Membership(brokers, topics, clients, float(config.transaction_heartbeat_period_second)),
            recent,
            Access(brokers, config),
            lambda: self.port,
            self.spans,
        )

    def _gone(self, client_id: str) -> None:
        assert self._service is not None
        log.info("client %s is gone; its unfinished messages are visible soon", client_id)
        task = asyncio.get_running_loop().create_task(self._service.keeper.release(client_id))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _sweep(self) -> None:
        self.service.clients.sweep()
        await self.service.membership.refresh()

    async def _tell(self) -> None:
        await tell_changes(self.service)


def _security(config: ProxyConfig) -> Security:
    """The proxy's access to name servers and brokers. OSError for an unusable certificate."""
    if not config.use_tls:
        return Security(*config.credentials())
    context = client_context(
        auth_server=config.tls_client_auth_server, trust_cert_path=config.tls_client_trust_cert_path
    )
    return Security(*config.credentials(), tls=context)
