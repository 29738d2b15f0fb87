"""A name server and brokers with static topics, and the steps of the tools that move queues."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aerobee.broker import server
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.bodies.stats import TopicStatsTable
from aerobee.protocol.bodies.topic import TopicConfigAndQueueMapping
from aerobee.protocol.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from aerobee.protocol.command import Command
from aerobee.protocol.headers.namesrv import GetRoute
from aerobee.protocol.headers.topics import GetTopicConfig, GetTopicStats, UpdateTopic
from aerobee.protocol.queues.logical_queues import to_logical

from .conftest import Caller
from .virtual_time import threads

BLOCK = 10_000  # logical offsets of a queue's next item begin at a multiple of this
UNDECIDED = -1


@dataclass
class Move:
    """A queue on its way from broker `old`, what each broker has of all logical queues, and how
    many physical ones."""

    topic: str
    old: str
    items: list[LogicQueueMappingItem]
    hosted: dict[str, dict[int, list[LogicQueueMappingItem]]]
    physical: dict[str, int]
    total: int


class StaticCluster:
    """Brokers by name, and a connection to each. `epoch` counts the changes of mappings."""

    def __init__(self, names: NameServer, now_ms: Callable[[], int]) -> None:
        self.names = names
        self._now_ms = now_ms
        self.brokers: dict[str, Broker] = {}
        self.callers: dict[str, Caller] = {}
        self.epoch = 1_000

    async def start(
        self, name: str, folder: Path, *, key: str | None = None, **settings: Any
    ) -> Broker:
        """Start a broker; it is known here by `key` if it is one more of its name."""
        base: dict[str, Any] = {
            "broker_name": name,
            "broker_ip1": "127.0.0.1",
            "listen_port": 0,
            "compiled_sends": False,
            "store_path_root_dir": str(folder),
            "namesrv_addr": f"127.0.0.1:{self.names.port}",
            "mapped_file_size_commit_log": 1 << 20,
            "mapped_file_size_consume_queue": 20 * 1_000,
            "max_index_num": 1_000,
            "max_hash_slot_num": 100,
        }
        broker = self.brokers[key or name] = Broker(
            BrokerConfig(**(base | settings)), now_ms=self._now_ms, threads=threads()
        )
        await broker.start()
        self.callers[key or name] = Caller(broker)
        return broker

    async def stop(self) -> None:
        for caller in self.callers.values():
            await caller.peers.close()
        for broker in self.brokers.values():
            await broker.stop()
        await self.names.stop()

    async def put(
        self,
        topic: str,
        broker: str,
        queues: dict[int, list[LogicQueueMappingItem]],
        *,
        physical: int,
        total: int,
        force: bool = False,
        bname: str | None = None,
    ) -> Command:
        """UPDATE_AND_CREATE_STATIC_TOPIC at one broker, or one of that name."""
        detail = TopicQueueMappingDetail(
            topic, total_queues=total, bname=bname or broker, epoch=self.epoch, hosted_queues=queues
        )
        header = UpdateTopic(topic, physical, physical, 6, force=force)
        return await self.callers[broker].ask(
            codes.UPDATE_AND_CREATE_STATIC_TOPIC, header, detail.encode()
        )

    async def create(self, topic: str, leaders: Sequence[str]) -> None:
        """A static topic whose queue n is led by the n-th of these brokers."""
        self.epoch += 1_000
        physical = dict.fromkeys(self.brokers, 0)
        queues: dict[str, dict[int, list[LogicQueueMappingItem]]] = {n: {} for n in self.brokers}
        for queue_id, broker in enumerate(leaders):
            queues[broker][queue_id] = [item(broker, physical[broker])]
            physical[broker] += 1
        for broker in self.brokers:
            done = await self.put(
                topic, broker, queues[broker], physical=physical[broker], total=len(leaders)
            )
            assert done.code == codes.SUCCESS, done.remark

    async def move(self, topic: str, queue_id: int, broker: str) -> None:
        """Have another broker lead a queue, as remappingStaticTopic does."""
        await self.decide(await self.begin_move(topic, queue_id, broker))

    async def begin_move(self, topic: str, queue_id: int, broker: str) -> Move:
        """First the new leader may be written to, then the old one no longer."""
        self.epoch += 1_000
        configs = {name: await self.config(topic, name) for name in self.brokers}
        details = {name: detail_of(config) for name, config in configs.items()}
        hosted = {name: detail.hosted_queues for name, detail in details.items()}
        old, items = next(
            (name, found)
            for name, queues in hosted.items()
            if (found := queues.get(queue_id)) and found[-1].bname == name
        )
        new = item(broker, configs[broker].write_queue_nums, UNDECIDED, items[-1].gen + 1)
        counts = {name: config.write_queue_nums for name, config in configs.items()}
        counts[broker] += 1
        total = details[old].total_queues
        hosted[broker][queue_id] = hosted[old][queue_id] = [*items, new]
        move = Move(topic, old, hosted[broker][queue_id], hosted, counts, total)
        for name in (broker, old):
            await self._put(move, name)
        return move

    async def decide(self, move: Move) -> None:
        """Then the logical offset of the new item is decided, and all others are told."""
        topic, (*_, last, new) = move.topic, move.items
        answer = await self.callers[move.old].ask(codes.GET_TOPIC_STATS_INFO, GetTopicStats(topic))
        table = TopicStatsTable.decode(answer.body).offset_table
        most = table[MessageQueue(topic, move.old, last.queue_id)].max_offset
        new.logic_offset = (to_logical(last, most) // BLOCK + 1) * BLOCK
        for name in [new.bname or "", *(self.brokers.keys() - {new.bname, move.old})]:
            await self._put(move, name)

    async def _put(self, move: Move, name: str) -> None:
        queues, physical = move.hosted[name], move.physical[name]
        done = await self.put(move.topic, name, queues, physical=physical, total=move.total)
        assert done.code == codes.SUCCESS, done.remark

    async def config(self, topic: str, broker: str) -> TopicConfigAndQueueMapping:
        """GET_TOPIC_CONFIG with the mapping."""
        header = GetTopicConfig(topic, broker, lo=True)
        answer = await self.callers[broker].ask(codes.GET_TOPIC_CONFIG, header)
        assert answer.code == codes.SUCCESS, answer.remark
        return TopicConfigAndQueueMapping.decode(answer.body)

    async def route(self, topic: str) -> TopicRouteData:
        """The route that the name server answers a client."""
        answer = await next(iter(self.callers.values())).peers.request(
            f"127.0.0.1:{self.names.port}",
            codes.GET_ROUTEINFO_BY_TOPIC,
            GetRoute(topic, standard_json=True),
        )
        assert answer.code == codes.SUCCESS, answer.remark
        return TopicRouteData.decode(answer.body)


def detail_of(config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    """The mapping of a static topic."""
    assert config.mapping_detail is not None
    return config.mapping_detail


def item(broker: str, queue_id: int, logic_offset: int = 0, gen: int = 0) -> LogicQueueMappingItem:
    """A stretch of a logical queue that begins at physical offset 0."""
    return LogicQueueMappingItem(gen, queue_id, broker, logic_offset)


@asynccontextmanager
async def static_cluster(
    folder: Path, *names: str, now_ms: Callable[[], int] | None = None, **settings: Any
) -> AsyncIterator[StaticCluster]:
    """A name server and brokers of these names, each in its own folder. `now_ms` is the time of
    messages."""
    names_server = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
    await names_server.start()
    cluster = StaticCluster(names_server, now_ms or server.wall_clock_ms)
    try:
        await asyncio.gather(*(cluster.start(n, folder / n, **settings) for n in names))
        yield cluster
    finally:
        await cluster.stop()
