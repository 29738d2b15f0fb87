"""Administration of brokers and name servers: settings, statistics, clean-up."""

from collections.abc import Mapping

from ...protocol import codes
from ...protocol.bodies.cluster import KVTable
from ...protocol.bodies.ha import HARuntimeInfo
from ...protocol.bodies.stats import BrokerStatsData, ConsumeStatsList
from ...protocol.headers.admin import RuntimeInfoResponse
from ...protocol.headers.groups import BrokerConsumeStats, StatsData
from ...protocol.headers.namesrv import (
    AddWritePermResponse,
    BrokerName,
    KVConfigItem,
    KVConfigResponse,
    KVNamespace,
    WipeWritePermResponse,
)
from ..base.responses import body_of, header_of
from ..errors import ClientError
from .base import Asking

Value = str | int | bool
AEROBEE_VERSION = "aerobeeVersion"  # next to RocketMQ's statistics


class BrokerAdmin(Asking):
    """The calls about brokers and name servers. `address` is a broker's "host:port"."""

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """A broker's statistics under RocketMQ's names; aerobee adds `aerobeeVersion`."""
        code = codes.GET_BROKER_RUNTIME_INFO
        answer = await self._ask(address, code)
        found = body_of(answer, KVTable, code).table
        version = header_of(answer, RuntimeInfoResponse, code).aerobee_version
        return found if version is None else found | {AEROBEE_VERSION: version}

    async def broker_config(self, address: str) -> str:
        """A broker's settings as the text of a properties file."""
        answer = await self._ask(address, codes.GET_BROKER_CONFIG)
        return (answer.body or b"").decode()

    async def update_broker_config(self, address: str, changes: Mapping[str, Value]) -> None:
        """Change settings of a running broker. BrokerError names a setting that it rejects. It
        passes over what it does not know."""
        await self._ask(address, codes.UPDATE_BROKER_CONFIG, body=_properties(changes))

    async def ha_status(self, address: str) -> HARuntimeInfo:
        """The replication state: of all slaves at a master, of the slave itself at a slave."""
        return await self._body(address, codes.GET_BROKER_HA_STATUS, HARuntimeInfo)

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData:
        """A counter by minute, hour and day: `name` as TOPIC_PUT_NUMS, `key` a topic, say."""
        header = StatsData(name, key)
        return await self._body(address, codes.VIEW_BROKER_STATS_DATA, BrokerStatsData, header)

    async def broker_consume_stats(self, address: str, *, order: bool = False) -> ConsumeStatsList:
        """The offsets of all groups on one broker."""
        header = BrokerConsumeStats(order)
        return await self._body(address, codes.GET_BROKER_CONSUME_STATS, ConsumeStatsList, header)

    async def clean_expired_queues(self, address: str) -> None:
        """Make a broker delete consume queue files whose messages were deleted."""
        await self._ask(address, codes.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_log(self, address: str) -> None:
        """Make a broker delete expired log files now."""
        await self._ask(address, codes.DELETE_EXPIRED_COMMITLOG)

    # --- name servers ---------------------------------------------------------------------------

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Have every name server tell clients not to send to a broker; how many topics changed.

        The step before a broker is taken away.
        """
        code = codes.WIPE_WRITE_PERM_OF_BROKER
        answers = await self._open().name_servers.ask_all(code, BrokerName(broker_name))
        return max(header_of(each, WipeWritePermResponse, code).topics for each in answers.values())

    async def add_write_permission(self, broker_name: str) -> int:
        """Take `wipe_write_permission` back; how many topics that changed."""
        code = codes.ADD_WRITE_PERM_OF_BROKER
        answers = await self._open().name_servers.ask_all(code, BrokerName(broker_name))
        return max(header_of(each, AddWritePermResponse, code).topics for each in answers.values())

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Keep a value at every name server."""
        item = KVConfigItem(namespace, key, value)
        await self._open().name_servers.ask_all(codes.PUT_KV_CONFIG, item)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """A value that the name servers keep; None when there is none."""
        code, accepted = codes.GET_KV_CONFIG, (codes.SUCCESS, codes.QUERY_NOT_FOUND)
        servers = self._open().name_servers
        answer = await servers.ask(code, KVConfigItem(namespace, key), accepted=accepted)
        if answer.code != codes.SUCCESS:
            return None
        return header_of(answer, KVConfigResponse, code).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Forget a value at every name server."""
        item = KVConfigItem(namespace, key)
        await self._open().name_servers.ask_all(codes.DELETE_KV_CONFIG, item)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; empty when there is none."""
        code, accepted = codes.GET_KVLIST_BY_NAMESPACE, (codes.SUCCESS, codes.QUERY_NOT_FOUND)
        servers = self._open().name_servers
        answer = await servers.ask(code, KVNamespace(namespace), accepted=accepted)
        return dict(body_of(answer, KVTable, code).table) if answer.body else {}

    async def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers that this client knows, each as "host:port"."""
        return self._open().name_servers.addresses

    async def namesrv_config(self) -> str:
        """A name server's settings as the text of a properties file."""
        answer = await self._open().name_servers.ask(codes.GET_NAMESRV_CONFIG)
        return (answer.body or b"").decode()

    async def update_namesrv_config(self, changes: Mapping[str, Value]) -> None:
        """Change settings of every name server."""
        body = _properties(changes)
        await self._open().name_servers.ask_all(codes.UPDATE_NAMESRV_CONFIG, body=body)


def _properties(changes: Mapping[str, Value]) -> bytes:
    """Settings as the text of a properties file."""
    if not changes:
        raise ClientError("no setting is given; name at least one")
    lines = []
    for name, value in changes.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "\n" in name + text or "=" in name:
            raise ClientError(f"setting {name!r} is {text!r}; neither may break the line")
        lines.append(f"{name}={text}\n")
    return "".join(lines).encode()
