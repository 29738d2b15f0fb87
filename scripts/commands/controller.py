"""`aerobee controller`: the process that elects the masters of brokers in controller mode."""

import argparse
import logging
import os
from pathlib import Path
from typing import Annotated

import msgspec

from ...conf.kinds import BindAddress
from ...conf.load import Keys, load
from ...controller.config import ControllerConfig
from ...store.base.errors import StoreError
from .. import logs, serving
from ..output.command_error import CommandError
from ..serving import Stack

HTTP_PORT_OFF = -1

log = logging.getLogger(__name__)


class ControllerSettings(ControllerConfig, frozen=True, kw_only=True):
    """A controller's settings and those of its HTTP endpoint."""

    http_port: Annotated[int, msgspec.Meta(ge=HTTP_PORT_OFF, le=65_535)] | None = None
    http_bind_address: BindAddress = "127.0.0.1"


# Keys of RocketMQ's controller that have no effect here, with their Java types.
ACCEPTED = {
    "rocketmqHome": "String",
    "controllerThreadPoolNums": "int",
    "controllerRequestThreadPoolQueueCapacity": "int",
    "controllerDLegerPeers": "String",
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
    add(
        *("-c", "--config"),
        dest="file",
        type=Path,
        metavar="FILE",
        help="settings: properties or YAML",
    )
    add("--listen-port", metavar="N", help="0: any free one (9878)")
    add("--store", metavar="DIR", help="where the state is kept (./aerobee-controller)")
    add(
        *("--set", "-s"),
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting by its RocketMQ name; may be repeated",
    )
    logs.add_options(parser, "info", logs.FULL)
    parser.set_defaults(run=controller)


def controller(options: argparse.Namespace) -> int:
    """A controller by itself."""
    settings = list(options.settings)
    for key, value in (
        ("listenPort", options.listen_port),
        ("controllerStorePath", options.store),
    ):
        if value is not None:
            settings.append(f"{key}={value}")
    try:
        config, warnings = load(KEYS, file=options.file, options=settings, environ=os.environ)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from wrong
    for warning in warnings:
        log.warning("%s", warning)

    async def parts(stack: Stack) -> str:
        from ...controller import overview
        from ...controller.server import Controller
        from ..endpoints import endpoint_of

        ours = Controller(config)
        try:
            await stack.start(ours)
        except StoreError as wrong:
            raise CommandError(str(wrong)) from wrong
        endpoint = endpoint_of(ours, overview, config.http_bind_address, config.http_port)
        await stack.start(endpoint)
        page = f", status page {endpoint.url}" if endpoint.url else ""
        return (
            f"the controller is ready on {ours.address}, state {config.controller_store_path}"
            f"{page}; brokers join it with enableControllerMode=true and "
            f"controllerAddr={ours.address}"
        )

    return serving.run(parts)
