"""HTTP/2 as a state machine: jh2 where it is installed, else h2. Both have the same names.

Our own headers are constant, so outbound ones are neither validated nor normalized; what inbound
ones must say is checked by the caller (`connection.py`).
"""

from typing import Any

try:
    from jh2 import config, events, exceptions, settings
    from jh2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine

    NAME = "jh2"
except ImportError:
    from h2 import config, events, exceptions, settings
    from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine

    NAME = "h2"

__all__ = ["NAME", "StateMachine", "events", "exceptions", "new_server", "settings"]

CLOSED_STREAMS_MAX = 1_000  # ended streams that are remembered; the library's 65,536 take 7 MB


class _ConnectionStates(H2ConnectionStateMachine):  # type: ignore[misc]
    """The states of one connection, in which open streams go on after the peer's GOAWAY.

    RFC 9113, 6.8 wants that. The library takes a GOAWAY for the end of the connection.
    """

    def process_input(self, frame: Any) -> Any:
        return [] if frame is ConnectionInputs.RECV_GOAWAY else super().process_input(frame)


class StateMachine(H2Connection):  # type: ignore[misc]
    """One connection."""

    MAX_CLOSED_STREAMS = CLOSED_STREAMS_MAX

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self.state_machine = _ConnectionStates()

    def clear_outbound_data_buffer(self) -> None:
        """Keep the bytes: the library drops them at a GOAWAY, but the streams go on."""


def new_client() -> Any:
    """The state machine of a client's end."""
    return StateMachine(config.H2Configuration(client_side=True, header_encoding=None))


def new_server(streams_max: int, stream_window: int) -> Any:
    """The state machine of a server's end, which accepts `streams_max` calls at once.

    `stream_window` is how many bytes of a call may come before they are acknowledged.
    """
    found = StateMachine(
        config.H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
        )
    )
    codes = settings.SettingCodes
    found.local_settings = settings.Settings(
        client=False,
        initial_values={
            codes.MAX_CONCURRENT_STREAMS: streams_max,
            codes.INITIAL_WINDOW_SIZE: stream_window,
            codes.MAX_HEADER_LIST_SIZE: found.DEFAULT_MAX_HEADER_LIST_SIZE,
            codes.ENABLE_CONNECT_PROTOCOL: 0,
        },
    )
    return found
