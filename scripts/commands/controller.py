"""`aerobee controller`: the process that elects the masters of brokers in controller mode.

`aerobee controller rebuild NAME` shows the members of a broker name at a controller that runs, and
with --elect has one of them elected by hand. A controller whose state was lost elects no master for
a name whose brokers know a newer epoch than it does.
"""

import argparse
import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from ...client.base.security import Security
from ...conf.kinds import LOG_FILE_MIB, BindAddress, ConsoleUrl, LogFileMib, LogFormat
from ...conf.load import Keys, given_settings
from ...conf.secret import secret_of
from ...console.findings.replicas import Replica, Replicas, elect, replicas_of
from ...controller.config import ControllerConfig
from ...protocol.addresses import is_loopback
from ...protocol.aio.peers import Peers
from .. import logs, serving
from ..output.command_error import CommandError
from ..output.table import Columns, print_rows
from ..serving import Stack
from .daemon_options import add_file, add_settings, loaded, setting

log = logging.getLogger(__name__)

HTTP_PORT_OFF = -1
DEFAULT_ADDRESS = "127.0.0.1:9878"
COLUMNS: Columns = ("ID", "ADDRESS", "ROLE", "ALIVE", "IN SET", "EPOCH", "LOG END")


class ControllerSettings(ControllerConfig, frozen=True, kw_only=True):
    """A controller's settings and those of its HTTP endpoint."""

    http_port: Annotated[int, msgspec.Meta(ge=HTTP_PORT_OFF, le=65_535)] | None = None
    http_bind_address: BindAddress = "127.0.0.1"
    http_token: str = ""
    log_format: LogFormat = "text"
    log_file: str = ""  # empty: standard error
    log_file_mib: LogFileMib = LOG_FILE_MIB
    console_url: ConsoleUrl = ""  # of a console of the cluster; empty: none is linked

    def __post_init__(self) -> None:
        super().__post_init__()
        secret_of("httpToken", self.http_token)


OPEN = (
    "bindAddress is %s and authenticationEnabled is false: anyone who reaches port %d can elect "
    "masters and remove brokers; set authenticationEnabled (docs/security.md), or "
    "bindAddress=127.0.0.1"
)
# Keys of RocketMQ's controller that have no effect here, with their Java types.
ACCEPTED = {
    "rocketmqHome": "String",
    "controllerThreadPoolNums": "int",
    "controllerRequestThreadPoolQueueCapacity": "int",
    "mappedFileSize": "int",
    "isProcessReadEvent": "boolean",
    "scanInactiveMasterInterval": "long",
    "configStorePath": "String",
    "metricsExporterType": "String",
    "metricsLabel": "String",
    "metricsInDelta": "boolean",
    "metricsPromExporterPort": "int",
    "metricsPromExporterHost": "String",
}
KEYS = Keys(ControllerSettings, accepted=ACCEPTED)


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("rebuild", nargs="?", choices=("rebuild",), help="show and elect members of NAME by hand")
    add("name", nargs="?", metavar="NAME", help="with rebuild: a broker name")
    add(
        "-a",
        "--address",
        default=DEFAULT_ADDRESS,
        metavar="ADDR;ADDR",
        help=f"with rebuild: the controllers ({DEFAULT_ADDRESS})",
    )
    add("--cluster", default="DefaultCluster", help="with rebuild: its cluster (DefaultCluster)")
    add("--elect", type=int, metavar="ID", help="with rebuild: make this member the master")
    add_file(parser, "-c", "--config", kinds="properties")
    add("--listen-port", metavar="N", help="0: any free one (9878)")
    add("--store", metavar="DIR", help="where the state is kept (./aerobee-controller)")
    add_settings(parser)
    logs.add_options(parser, "info", logs.FULL)
    parser.set_defaults(run=controller)


def of_name_server(
    file: Path | None, options: Iterable[str], environ: Mapping[str, str]
) -> ControllerConfig:
    """The settings of a controller in the process of a name server, from the same sources.

    As in RocketMQ its port is that of this controller in controllerDLegerPeers. CommandError.
    """
    keys = Keys(ControllerConfig)
    try:
        given = given_settings(keys, file=file, options=options, environ=environ)
        its = (each for each in given if each.key in keys.fields and each.key != "listenPort")
        config = ControllerConfig(**keys.values(its)[0])
        own = config.peers.get(config.controller_dleger_self_id)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from wrong
    if own is None:
        return config
    return msgspec.structs.replace(config, listen_port=int(own.rpartition(":")[2]))


def rebuild(options: argparse.Namespace) -> int:
    """Show the members of a broker name, and with --elect have one elected."""
    if not options.name:
        raise CommandError("rebuild needs the name of a broker: aerobee controller rebuild NAME")
    controllers = [text for text in options.address.replace(",", ";").split(";") if text]

    async def work() -> Replicas:
        own = Security.from_environment()
        peers = Peers(tls=own.context, sign=own.sign if own.signs else None)
        try:
            found = await replicas_of(peers, controllers, options.name)
            if options.elect is not None:
                await elect(peers, found.controller, options.cluster, options.name, options.elect)
                found = await replicas_of(peers, controllers, options.name)
        finally:
            await peers.close()
        return found

    found = asyncio.run(work())
    rows = [
        (
            one.broker_id,
            one.address,
            "master" if one.broker_id == found.master_id else "slave",
            *("yes" if flag else "no" for flag in (one.is_alive, one.is_in_set)),
            one.epoch,
            one.log_end,
        )
        for one in found.members
    ]
    print_rows(COLUMNS, rows, as_json=False)
    newest = max((one for one in found.members if one.is_alive), key=_log, default=None)
    print(f"controller {found.controller}: master epoch {found.master_epoch}", end="")
    if found.master_id is None and newest is not None:
        print(f", no master; the longest log has broker {newest.broker_id}: --elect it", end="")
    print()
    return 0


def _log(one: Replica) -> tuple[int, int]:
    return one.epoch, one.log_end


def controller(options: argparse.Namespace) -> int:
    """A controller by itself, or a view of a broker name of one that runs."""
    if options.rebuild:
        return rebuild(options)
    settings = [
        *options.settings,
        *setting("listenPort", options.listen_port),
        *setting("controllerStorePath", options.store),
        *logs.settings(options),
    ]
    config = loaded(KEYS, options.file, settings)
    logs.start(options, config)
    if not is_loopback(config.bind_address) and not config.authentication_enabled:
        log.warning(OPEN, config.bind_address, config.listen_port)

    async def parts(stack: Stack) -> str:
        from ...controller import overview
        from ...controller.server import Controller
        from ..endpoints import endpoint_of

        ours = Controller(config)
        await stack.start(ours)
        endpoint = endpoint_of(ours, overview, config, ours.slices.run, config.listen_port)
        await stack.start(endpoint)
        page = f", HTTP {endpoint.url}" if endpoint.url else ""
        return (
            f"the controller is ready on {ours.address}, state {ours.engine.place}{page}; brokers "
            f"join it with enableControllerMode=true and controllerAddr={ours.addresses}"
        )

    return serving.run(parts)
