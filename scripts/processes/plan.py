"""The names, ports and stores of the members of a group of brokers, from the settings of one.

Member i is called `<brokerName>-<i>`. Its ports lie i * 10 above those of the settings, its status
page 5 above its listen port; port 0 stays 0, any free one. Its store is a folder of its name in
`storePathRootDir`, and in `storePathCommitLog` where that is set.
"""

import errno
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...broker.controlled.ports import VIP_PORT_DISTANCE
from ...broker.settings.config import HTTP_PORT_OFF, BrokerConfig, load_broker
from ..output.command_error import CommandError

MEMBERS_MAX = 64
PORT_DISTANCE = 10
PAGE_DISTANCE = 5
PORT_MAX = 65_535
AUTO = "auto"
READ_ONLY = ("brokerPermission=4",)
LOG_FOLDER = "commitlog"
# In the store of a member that was read to its end, so that the next start leaves it alone.
DRAINED = "drained"


@dataclass(frozen=True)
class MemberPlan:
    """The values in which a member differs from the others: name, and settings as `key=value`."""

    name: str
    settings: tuple[str, ...]
    config: BrokerConfig
    is_leaving: bool = False

    @property
    def ports(self) -> list[int]:
        """All ports that the member listens on, except those that it chooses itself."""
        port = self.config.listen_port
        fast = max(0, port - VIP_PORT_DISTANCE)
        page = self.config.http_port or 0
        return [one for one in (fast, port, self.config.ha_listen_port, page) if one > 0]


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_of(text: str) -> int:
    """The number of members that `--processes` asks for; CommandError for any other text."""
    if text == AUTO:
        return min(cores(), MEMBERS_MAX)
    if not text.isdecimal() or not 0 < int(text) <= MEMBERS_MAX:
        raise CommandError(
            f"--processes is {text!r}, but must be {AUTO} or a number from 1 to {MEMBERS_MAX}; "
            "correct it"
        )
    return int(text)


def plan(
    config: BrokerConfig,
    count: int,
    *,
    file: Path | None,
    settings: Sequence[str],
    environ: Mapping[str, str],
) -> list[MemberPlan]:
    """The members, and behind them those of a larger group before that still have messages.

    CommandError for settings that a group can't have.
    """
    _check(config)

    def member(number: int, more: Sequence[str] = ()) -> MemberPlan:
        own = (*_own(config, number), *more)
        final, _ = load_broker(file=file, options=[*settings, *own], environ=environ)
        return MemberPlan(final.broker_name, own, final, bool(more))

    members = [member(number) for number in range(count)]
    for each in members:
        (each.config.store_dir / DRAINED).unlink(missing_ok=True)
    leaving = [member(number, READ_ONLY) for number in _left_over(config, count)]
    return members + leaving


def _check(config: BrokerConfig) -> None:
    if config.enable_controller_mode:
        raise CommandError(
            "--processes starts a group of masters, and enableControllerMode has a controller "
            "elect them; leave one of the two out"
        )
    if (config.store_dir / LOG_FOLDER).is_dir():
        own = config.store_dir / f"{config.broker_name}-0"
        raise CommandError(
            f"{config.store_dir} is the store of one broker by itself, and a group has a folder "
            f"for each member in it; move what is there to {own}, which the first member opens"
        )


def _own(config: BrokerConfig, number: int) -> tuple[str, ...]:
    name, above = f"{config.broker_name}-{number}", number * PORT_DISTANCE
    port = config.listen_port and config.listen_port + above
    ha_port = config.ha_listen_port and config.ha_listen_port + above
    page = port and port + PAGE_DISTANCE
    if max(port, ha_port, page) > PORT_MAX:
        raise CommandError(
            f"the ports of {name} would be {port}, {ha_port} and {page}, the limit is {PORT_MAX}; "
            "set a lower listenPort and haListenPort"
        )
    if config.http_port == HTTP_PORT_OFF:
        page = HTTP_PORT_OFF
    own = [
        f"brokerName={name}",
        f"listenPort={port}",
        f"haListenPort={ha_port}",
        f"httpPort={page}",
        "httpBindAddress=127.0.0.1",
        f"storePathRootDir={config.store_dir / name}",
    ]
    if config.store_path_commit_log:
        own.append(f"storePathCommitLog={config.commit_log_dir / name}")
    return tuple(own)


def _left_over(config: BrokerConfig, count: int) -> list[int]:
    """The numbers of the stores of a larger group that were not read to their end yet."""
    folder, wanted = config.store_dir, re.compile(re.escape(config.broker_name) + r"-(\d{1,2})")
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    numbers = {int(found[1]) for name in names if (found := wanted.fullmatch(name)) is not None}
    return [
        number
        for number in sorted(numbers)
        if count <= number < MEMBERS_MAX
        and not (folder / f"{config.broker_name}-{number}" / DRAINED).exists()
    ]


def check_ports(members: Sequence[MemberPlan], page: tuple[str, int] | None) -> None:
    """CommandError that names all ports of the group that are taken, or asked for twice.

    `page` is the address of the group's own HTTP port.
    """
    wanted = [
        (each.name, each.config.bind_address, port) for each in members for port in each.ports
    ]
    if page is not None and page[1] > 0:
        wanted.append(("the group's HTTP port", *page))
    seen: dict[int, str] = {}
    faults = []
    for name, address, port in wanted:
        if port in seen:
            faults.append(f"{port} of {name} is also of {seen[port]}")
        elif _is_taken(address, port):
            faults.append(f"{port} of {name} is taken")
        seen[port] = name
    if faults:
        raise CommandError(
            f"nothing was started, since of the group's ports {', '.join(faults)}; stop what "
            "listens there, or set listenPort, haListenPort or httpPort"
        )


def _is_taken(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as wrong:
            return wrong.errno == errno.EADDRINUSE
    return False
