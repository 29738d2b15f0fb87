"""Another broker of the name, which only tells its epochs."""

from types import TracebackType

from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Row
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.bodies.ha import EpochEntryCache, EpochSpan
from aerobee.protocol.command import Response


class Other:
    """Answers 1007 at `address`; `broker_id` is the id of its role."""

    def __init__(self, broker_id: int, *, epoch: int, end: int, name: str = "broker-a") -> None:
        span = EpochSpan(end_offset=1 << 62, epoch=epoch, start_offset=0)
        self._told = EpochEntryCache(
            broker_id=broker_id,
            broker_name=name,
            cluster_name="c",
            epoch_list=[span],
            max_offset=end,
        )
        self._server = Server()
        self.address = ""

    async def __aenter__(self) -> "Other":
        row = Row(codes.GET_BROKER_EPOCH_CACHE, None, self._answer)
        port = await self._server.listen("127.0.0.1", 0, table([row]))
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop()

    def _answer(self, *given: object) -> Response:
        return Response(codes.SUCCESS, body=self._told.encode())
