"""The handlers of a controller's requests, and the request table.

Changes are serialized: the rules decide on the current state, the engine stores the events, then
the response goes out. Queries are answered at once, from memory. A controller that does not lead
takes heartbeats, says which one leads (1005), and refuses what needs the state.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

import msgspec

from ..conf import changes, log_levels
from ..protocol import codes
from ..protocol.aio.connection import Connection, Row
from ..protocol.bodies.controller import SyncStateSet
from ..protocol.command import Command, Response
from ..protocol.errors import Refusal
from ..protocol.headers import controller as headers
from ..protocol.security.needs import ANYONE, CLUSTER_GET
from ..store.base.errors import StoreError
from . import rules
from .config import ControllerConfig
from .engine import Engine, NotLeaderError
from .live import NEVER, PRIORITY_LAST, Key, LiveBrokers, Position
from .rules import Decision

log = logging.getLogger(__name__)

WAITING_MAX = 10_000  # changes that may wait to be stored
NOT_LEADER = "The controller is not in leader state"
MEMBERS_IN_SET_MAX = rules.MEMBERS_MAX
NAMES_IN_REQUEST_MAX = rules.NAMES_MAX


class Handlers:
    """The requests of one controller. `elected` is called after each successful election."""

    def __init__(
        self,
        engine: Engine,
        live: LiveBrokers,
        config: ControllerConfig,
        elected: Callable[[str, Decision], None],
    ) -> None:
        self.config = config
        self.peers: dict[str, str] = {}  # the controllers by id, as "host:port"
        self.elections = 0
        self._engine = engine
        self._live = live
        self._elected = elected
        self._changing = asyncio.Lock()
        self._tasks: dict[asyncio.Task[Response], None] = {}
        self._twin: tuple[Key, str] | None = None  # the last broker whose id belongs to another

    def rows(self) -> list[Row]:
        """The request table."""
        return [
            Row(codes.CONTROLLER_ALTER_SYNC_STATE_SET, headers.AlterSyncStateSet, self.on_alter),
            Row(codes.CONTROLLER_ELECT_MASTER, headers.ElectMaster, self.on_elect),
            Row(
                codes.CONTROLLER_REGISTER_BROKER,
                headers.RegisterBrokerToController,
                self.on_register,
            ),
            Row(
                codes.CONTROLLER_GET_REPLICA_INFO,
                headers.GetReplicaInfo,
                self.on_replica_info,
                ANYONE,
            ),
            Row(codes.CONTROLLER_GET_METADATA_INFO, None, self.on_metadata, ANYONE),
            Row(codes.CONTROLLER_GET_SYNC_STATE_DATA, None, self.on_sync_state_data, ANYONE),
            Row(codes.UPDATE_CONTROLLER_CONFIG, None, self.on_update_config),
            Row(codes.GET_CONTROLLER_CONFIG, None, self.on_get_config, CLUSTER_GET),
            Row(codes.CLEAN_BROKER_DATA, headers.CleanBrokerData, self.on_clean),
            Row(codes.CONTROLLER_GET_NEXT_BROKER_ID, headers.GetNextBrokerId, self.on_next_id),
            Row(codes.CONTROLLER_APPLY_BROKER_ID, headers.ApplyBrokerId, self.on_apply_id),
            Row(codes.BROKER_HEARTBEAT, headers.ControllerHeartbeat, self.on_heartbeat),
        ]

    # --- changes --------------------------------------------------------------------------------

    def on_alter(
        self, header: headers.AlterSyncStateSet, command: Command, connection: Connection
    ) -> Coroutine[object, object, Response]:
        try:
            wanted = SyncStateSet.decode(command.body)
        except ValueError as wrong:
            raise Refusal(codes.CONTROLLER_INVALID_REQUEST, str(wrong)) from None
        if len(wanted.sync_state_set) > MEMBERS_IN_SET_MAX:
            raise Refusal(
                codes.CONTROLLER_INVALID_REQUEST,
                f"the set has {len(wanted.sync_state_set)} members, the limit is "
                f"{MEMBERS_IN_SET_MAX}; propose members of this broker name only",
            )
        return self._change(
            lambda: rules.alter_sync_set(self._engine.groups, self._live, header, wanted)
        )

    def on_elect(
        self, header: headers.ElectMaster, command: Command, connection: Connection
    ) -> Coroutine[object, object, Response]:
        return self._elect(header)

    def on_register(
        self, header: headers.RegisterBrokerToController, command: Command, connection: Connection
    ) -> Coroutine[object, object, Response]:
        return self._change(lambda: rules.register(self._engine.groups, self._live, header))

    def on_clean(
        self, header: headers.CleanBrokerData, command: Command, connection: Connection
    ) -> Coroutine[object, object, Response]:
        return self._change(lambda: rules.clean(self._engine.groups, self._live, header))

    def on_apply_id(
        self, header: headers.ApplyBrokerId, command: Command, connection: Connection
    ) -> Coroutine[object, object, Response]:
        return self._change(lambda: rules.apply_id(self._engine.groups, self._live, header))

    async def elect_for(self, name: str) -> None:
        """Elect a successor for a dead master."""
        header = headers.ElectMaster("", name, headers.CONTROLLER_ITSELF, False)
        for _ in range(self.config.elect_master_max_retry_count):
            response = await self._elect(header)
            if response.code != codes.SYSTEM_ERROR:  # on a journal error, try again
                break
        if response.code != codes.SUCCESS:
            log.warning("no master for %s: %s", name, response.remark)

    # --- queries --------------------------------------------------------------------------------

    def on_replica_info(
        self, header: headers.GetReplicaInfo, command: Command, connection: Connection
    ) -> Response:
        self._check_leader()
        return _response(rules.replica_info(self._engine.groups, header))

    def on_metadata(self, header: None, command: Command, connection: Connection) -> Response:
        leading, peers = self._engine.leading, self.peers
        fields = headers.GetMetadataResponse(
            self.config.controller_dleger_group,
            leading.controller_id or None,
            leading.address or None,
            self._engine.is_leader,
            "".join(f"{one}:{address};" for one, address in peers.items()),
        ).to_fields()
        return Response(codes.SUCCESS, fields)

    def on_sync_state_data(
        self, header: None, command: Command, connection: Connection
    ) -> Response:
        self._check_leader()
        if not command.body:
            return Response()
        try:
            names = msgspec.json.decode(command.body, type=list[str])
        except msgspec.MsgspecError as wrong:
            raise Refusal(
                codes.CONTROLLER_INVALID_REQUEST, f"the body is no list of broker names: {wrong}"
            ) from None
        if len(names) > NAMES_IN_REQUEST_MAX:
            raise Refusal(
                codes.CONTROLLER_INVALID_REQUEST,
                f"the body has {len(names)} names, the limit is {NAMES_IN_REQUEST_MAX}; name fewer "
                "at a time",
            )
        return _response(rules.sync_state_data(self._engine.groups, self._live, names))

    def on_next_id(
        self, header: headers.GetNextBrokerId, command: Command, connection: Connection
    ) -> Response:
        self._check_leader()
        return _response(rules.next_id(self._engine.groups, header))

    def on_heartbeat(
        self, header: headers.ControllerHeartbeat, command: Command, connection: Connection
    ) -> Response:
        if header.broker_id is None:
            return Response(
                codes.CONTROLLER_INVALID_REQUEST, remark="Heart beat with empty brokerId"
            )
        position = Position(
            NEVER if header.epoch is None else header.epoch,
            NEVER if header.max_offset is None else header.max_offset,
            PRIORITY_LAST if header.election_priority is None else header.election_priority,
        )
        key = (header.cluster, header.broker_name, header.broker_id)
        wrong = rules.twin(self._engine.groups, self._live, key, header.broker_addr)
        if wrong:
            self._tell_twin(key, header.broker_addr, wrong)
            raise Refusal(codes.CONTROLLER_BROKER_ID_INVALID, wrong)
        if not self._live.heard(key, header.broker_addr, connection, position, header.timeout_ms):
            raise Refusal(
                codes.CONTROLLER_INVALID_REQUEST,
                f"{len(self._live)} brokers have sent heartbeats, which is the limit; use another "
                "controller for some of them",
            )
        return Response(codes.SUCCESS, remark="Heart beat success")

    # --- settings -------------------------------------------------------------------------------

    def on_update_config(self, header: None, command: Command, connection: Connection) -> Response:
        if command.body:
            found = changes.requested(
                self.config, ControllerConfig, command.body, connection.address
            )
            if found.log_level != self.config.log_level:
                log_levels.use(found.log_level)
            self.config = found
        return Response()

    def on_get_config(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(body=self.config.to_properties().encode())

    def _tell_twin(self, key: Key, address: str, wrong: str) -> None:
        """Log it, unless it is the broker that was logged last."""
        if self._twin != (key, address):
            self._twin = key, address
            log.error("%s", wrong)

    async def finish(self) -> None:
        """Wait until every change in progress is stored."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside ---------------------------------------------------------------------------------

    async def _elect(self, header: headers.ElectMaster) -> Response:
        def decide() -> Decision:
            unclean = self.config.enable_elect_unclean_master
            return rules.elect_master(self._engine.groups, self._live, header, unclean=unclean)

        def tell(decision: Decision) -> None:
            if decision.code == codes.SUCCESS:
                self.elections += 1
                self._elected(header.broker_name, decision)

        return await self._change(decide, tell)

    async def _change(
        self, decide: Callable[[], Decision], then: Callable[[Decision], None] | None = None
    ) -> Response:
        """Decide, store the events, call `then`, respond."""
        if len(self._tasks) >= WAITING_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]{len(self._tasks)} changes wait to be stored, the limit is "
                f"{WAITING_MAX}; try again later",
            )
        # A task of its own: a client that disconnects does not interrupt a write.
        task = asyncio.get_running_loop().create_task(self._commit(decide, then))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return await asyncio.shield(task)

    async def _commit(
        self, decide: Callable[[], Decision], then: Callable[[Decision], None] | None
    ) -> Response:
        engine = self._engine
        try:
            async with self._changing:
                if not engine.is_leader:
                    return Response(codes.CONTROLLER_NOT_LEADER, remark=NOT_LEADER)
                decision = decide()
                if decision.events:
                    await engine.store(decision.events)
        except NotLeaderError as wrong:
            log.warning("a change was not stored: %s", wrong)
            return Response(codes.CONTROLLER_NOT_LEADER, remark=NOT_LEADER)
        except StoreError as wrong:
            log.error("a change could not be stored: %s", wrong)
            return Response(codes.SYSTEM_ERROR, remark=f"the change could not be stored: {wrong}")
        for event in decision.events:
            log.info("%s", event)
        if then is not None:
            then(decision)
        return _response(decision)

    def _check_leader(self) -> None:
        if not self._engine.is_leader:
            raise Refusal(codes.CONTROLLER_NOT_LEADER, NOT_LEADER)


def _response(decision: Decision) -> Response:
    fields = None if decision.header is None else decision.header.to_fields()
    return Response(decision.code, fields, decision.remark, decision.body or None)
