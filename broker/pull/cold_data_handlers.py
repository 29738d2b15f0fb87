"""Requests about reads from the disk: cold data flow control (2001 to 2003), read-ahead of the log
(2004), and RocksDB (354, 355), which a broker with files doesn't have."""

from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.stats import RocksdbCheck
from ...protocol.codec import java_properties
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...store.engine.store import MessageStore
from ..access import needs
from ..settings.dynamic import DynamicSettings
from .cold_data import ColdData

MODE = "READ_AHEAD_MODE"
NORMAL, RANDOM = 0, 1  # the values of Linux' madvise
BODY_BYTES_MAX = 1 << 20
GROUP_CHARS_MAX = 255
THRESHOLD_MAX = (1 << 63) - 1


@dataclass(slots=True, eq=False)
class AdminColdDataHandlers:
    """Answers them."""

    cold: ColdData
    store: MessageStore
    dynamic_settings: DynamicSettings

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
                None,
                self.on_check_rocksdb,
                needs.OUR_CLUSTER_GET,
            ),
            Row(
                codes.EXPORT_ROCKSDB_CONFIG_TO_JSON,
                None,
                self.on_export_rocksdb,
                needs.OUR_CLUSTER_UPDATE,
            ),
            Row(
                codes.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
                None,
                self.on_update,
                needs.OUR_CLUSTER_UPDATE,
            ),
            Row(
                codes.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
                None,
                self.on_remove,
                needs.OUR_CLUSTER_UPDATE,
            ),
            Row(codes.GET_COLD_DATA_FLOW_CTR_INFO, None, self.on_info, needs.OUR_CLUSTER_GET),
            Row(codes.SET_COMMITLOG_READ_MODE, None, self.on_read_mode, needs.OUR_CLUSTER_UPDATE),
        ]

    def on_check_rocksdb(self, header: None, command: Command, connection: Connection) -> Response:
        """RocketMQ checks later, and finds that it has no queues in RocksDB."""
        return Response(codes.SUCCESS, body=RocksdbCheck().encode())

    def on_export_rocksdb(self, header: None, command: Command, connection: Connection) -> Response:
        """Topics, groups and offsets are JSON files already."""
        return Response(codes.SUCCESS, remark="export done.")

    def on_update(self, header: None, command: Command, connection: Connection) -> Response:
        """Thresholds by group; a line that is wrong is passed over, as in RocketMQ."""
        try:
            wanted = java_properties.parse(_text(command))
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, f"string2Properties error: {wrong}") from None
        for group, text in wanted.items():
            number = text.strip().removeprefix("+")
            if number.isascii() and number.isdigit() and len(group) <= GROUP_CHARS_MAX:
                self.cold.set_threshold(group, min(int(number[:20]), THRESHOLD_MAX))
        return OK

    def on_remove(self, header: None, command: Command, connection: Connection) -> Response:
        self.cold.remove_threshold(_text(command))
        return OK

    def on_info(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(codes.SUCCESS, body=self.cold.info().encode())

    def on_read_mode(self, header: None, command: Command, connection: Connection) -> Response:
        text = command.fields().get(MODE, "")
        if text not in (str(NORMAL), str(RANDOM)):
            is_number = text.removeprefix("-").isdigit()
            code = codes.INVALID_PARAMETER if is_number else codes.SYSTEM_ERROR
            raise Refusal(
                code,
                f"set commitlog readahead mode param value error: {MODE} is {text[:20]!r}, and can "
                f"be {NORMAL} to read ahead or {RANDOM} not to",
            )
        wanted = text == str(NORMAL)
        self.dynamic_settings.update({"dataReadAheadEnable": str(wanted).lower()})
        self.store.page_cache.read_log_ahead(wanted=wanted)
        return Response(codes.SUCCESS, remark=f"set commitlog readahead mode success, mode: {text}")


def _text(command: Command) -> str:
    body = command.body or b""
    if len(body) > BODY_BYTES_MAX:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"{len(body)} bytes in one request, the limit is {BODY_BYTES_MAX}; send several",
        )
    try:
        return body.decode()
    except ValueError:
        raise Refusal(codes.SYSTEM_ERROR, "string2Properties error: it is no UTF-8") from None
