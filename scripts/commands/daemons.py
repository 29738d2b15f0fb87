"""`aerobee up`, `namesrv` and `broker`: from options to settings, and the ready line of each."""

import argparse
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...conf.kinds import LOG_FILE_MIB, BindAddress, ConsoleUrl, LogFileMib, LogFormat
from ...conf.load import Keys, given_settings, load
from ...conf.secret import secret_of
from ...conf.sources import ENVIRONMENT_PREFIX, from_environment
from ...controller.config import ControllerConfig
from ...namesrv.config import UNUSED, NamesrvConfig
from ...protocol.addresses import is_loopback
from ...protocol.aio.connection import host_text
from ...store.base.errors import DamagedStore
from .. import logs, serving
from ..child_command import STAYS_DOWN
from ..numbers import PORT
from ..output.command_error import CommandError
from ..output.progress import bytes_bar
from ..output.sanitize import sanitize
from ..processes import starting
from ..serving import Stack
from .daemon_options import add_file, add_print_config, add_settings, print_config, setting, warn

if TYPE_CHECKING:
    from ...broker.settings.config import BrokerConfig
    from ...namesrv.server import NameServer
    from ..held_console import HeldConsole

HTTP_PORT_OFF = -1
GRPC_PORT = 8081
CONSOLE_PORT = 8082
ROCKETMQ_STORE = "~/store"  # the default store of a Java broker
ROCKETMQ_KV_CONFIG = "~/namesrv/kvConfig.json"  # the same for a name server
UP_STORE = "aerobee-data"
UP_KV_CONFIG = "namesrv/kvConfig.json"  # in the store folder
# Settings that `up` turns on by default; `aerobee broker` leaves them off.
UP_TURNS_ON = ("enablePropertyFilter", "recallMessageEnable")
RECOVERING = "recovering the store"


class NamesrvSettings(NamesrvConfig, frozen=True, kw_only=True):
    """A name server's settings and those of its HTTP endpoint, which Java's doesn't have."""

    http_port: Annotated[int, msgspec.Meta(ge=HTTP_PORT_OFF, le=65_535)] | None = None
    http_bind_address: BindAddress = "127.0.0.1"
    log_format: LogFormat = "text"
    log_file: str = ""  # empty: standard error
    log_file_mib: LogFileMib = LOG_FILE_MIB
    http_token: str = ""
    console_url: ConsoleUrl = ""  # of a console of the cluster; empty: none is linked
    kv_config_path: str = ROCKETMQ_KV_CONFIG  # an embedded server writes no file

    def __post_init__(self) -> None:
        super().__post_init__()
        secret_of("httpToken", self.http_token)


OPEN_NAME_SERVER = (
    "bindAddress is {} and authenticationEnabled is false: anyone who reaches port {} can register "
    "a false broker, which clients then send to, and take the routes of all topics away; set "
    "authenticationEnabled (docs/security.md), or bindAddress=127.0.0.1"
)

UNSIGNED_BROKER = (
    "authenticationEnabled is true without innerClientAuthenticationCredentials, so the broker "
    "can't sign, and the name server takes registrations from anyone; set both"
)

# Those of a controller in the same process may stand beside them.
OF_CONTROLLER = Keys(ControllerConfig).fields.keys() - Keys(NamesrvSettings).fields.keys()
NAMESRV_KEYS = Keys(NamesrvSettings, dict.fromkeys(OF_CONTROLLER, "String"), UNUSED)


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the three."""
    add = parser.add_argument
    if command == "up":
        add("--store", metavar="DIR", help=f"where messages are kept (./{UP_STORE})")
        add("--namesrv-port", type=PORT, default=9876, metavar="N", help="0: any free one (9876)")
        add("--listen-port", type=PORT, metavar="N", help="the broker's; 0: any free one (10911)")
        add(
            "--grpc",
            nargs="?",
            type=PORT,
            const=GRPC_PORT,
            metavar="N",
            help=f"start a proxy for clients of RocketMQ 5, too; on this port ({GRPC_PORT})",
        )
        add(
            "--console-port",
            type=PORT,
            default=CONSOLE_PORT,
            metavar="N",
            help=f"of the console, which starts with its first visitor; 0: any free one "
            f"({CONSOLE_PORT})",
        )
        add("--no-console", action="store_true", help="have no console")
        parser.set_defaults(run=up)
    else:
        add_file(parser, "-c", "--config", kinds="properties")
    if command == "namesrv":
        add("--listen-port", type=PORT, metavar="N", help="0: any free one (9876)")
        parser.set_defaults(run=namesrv)
    if command == "broker":
        add("-n", "--namesrv", metavar="ADDR;ADDR", help="name servers to register with")
        add_print_config(parser)
        add("--enable-proxy", action="store_true", help="start a proxy for gRPC, too")
        add("-pc", "--proxy-config", type=Path, metavar="FILE", help="settings of that proxy")
        add("--with-parent", action="store_true", help=argparse.SUPPRESS)  # of a group's member
        parser.set_defaults(run=broker)
    if command != "namesrv":
        starting.add_options(parser)
    add_settings(parser)
    logs.add_options(parser, "warning" if command == "up" else "info", logs.FULL)


def up(options: argparse.Namespace) -> int:
    """A name server and a broker that registers with it, in one process."""
    from ...broker.settings.config import KEYS, load_broker

    for_namesrv = [text for text in options.settings if _is_only_of_namesrv(text, KEYS.fields)]
    settings = [text for text in options.settings if text not in for_namesrv]
    settings += setting("listenPort", options.listen_port)
    settings += setting("storePathRootDir", options.store)
    settings += logs.settings(options)
    set_outside = {each.key for each in from_environment(os.environ, KEYS.fields)}
    settings = [f"{key}=true" for key in UP_TURNS_ON if key not in set_outside] + settings
    config, _ = load_broker(options=settings, environ=os.environ)
    if config.store_path_root_dir == ROCKETMQ_STORE:
        settings.append(f"storePathRootDir={UP_STORE}")
        config, _ = load_broker(options=settings, environ=os.environ)
    for_namesrv = [
        f"kvConfigPath={config.store_dir / UP_KV_CONFIG}",
        *for_namesrv,
        f"bindAddress={config.bind_address}",
        f"listenPort={options.namesrv_port}",
    ]
    for_namesrv += setting("tlsServerMode", config.tls_server_mode)
    for_namesrv += setting("tlsServerCertPath", config.tls_server_cert_path)
    for_namesrv += setting("tlsServerKeyPath", config.tls_server_key_path)
    for_namesrv += _access_of(config)
    logs.start(options, config)
    names_config, names_warnings = load(NAMESRV_KEYS, options=for_namesrv)
    warn(names_warnings)

    async def parts(stack: Stack) -> str:
        names, bind = _name_server(names_config), config.bind_address
        await stack.start(names)
        address = _to_connect(bind, names.port)
        console: HeldConsole | None = None
        if not options.no_console:
            from ..held_console import HeldConsole as Held

            console = Held(address, options.console_port)
            await stack.start(console)
        link = setting("consoleUrl", console.url if console else None)
        own = [*link, *settings, f"namesrvAddr={address}"]
        final, warnings = load_broker(options=own, environ=os.environ)
        warn(warnings)
        if options.processes is None:
            port, page = await _start_broker(stack, final)
            brokers = f"broker {_listens(final, port)}, store {final.store_dir}{page}"
        else:
            brokers = "brokers " + await starting.start_group(stack, final, own, options)
        elsewhere = "" if address == "127.0.0.1:9876" else f" -n {address}"
        grpc = ""
        if options.grpc is not None:
            words = [
                "--listen-port",
                str(options.grpc),
                "--log-level",
                "warning",
                "--set",
                f"bindAddress={bind}",
                "--set",
                f"consoleUrl={final.console_url}",
            ]
            grpc = await _proxy(stack, address, *words, own=_proxy_variables(config))
        return (
            f"aerobee is ready: name server {address}, {brokers}{grpc}"
            f"{console.said if console else ''}; "
            f"try: echo hello | {_command()} pub greetings{elsewhere}"
        )

    return serving.run(parts)


def _access_of(config: "BrokerConfig") -> list[str]:
    """Settings with which a name server has the access control of its broker: the broker's users
    and rules, once it has made them."""
    if not config.authentication_enabled:
        return []
    if not config.inner_client_authentication_credentials:  # an unsigned broker can't register
        warn([UNSIGNED_BROKER])
        return []
    return [
        "authenticationEnabled=true",
        f"authorizationEnabled={str(config.authorization_enabled).lower()}",
        f"authUsersPath={config.store_dir / 'config'}",
        f"initAuthenticationUser={config.init_authentication_user}",
        f"innerClientAuthenticationCredentials={config.inner_client_authentication_credentials}",
    ]


def _proxy_variables(config: "BrokerConfig") -> dict[str, str]:
    """Variables with which a proxy asks this broker, and has its access control."""
    of_tls = config.tls_server_mode == "enforcing"
    found = {
        "AUTHENTICATION_ENABLED": str(config.authentication_enabled).lower(),
        "AUTHORIZATION_ENABLED": str(config.authorization_enabled).lower(),
        "INNER_CLIENT_AUTHENTICATION_CREDENTIALS": (config.inner_client_authentication_credentials),
        "USE_TLS": str(bool(config.use_tls)).lower(),
        "TLS_CLIENT_AUTH_SERVER": str(config.tls_client_auth_server).lower(),
        "TLS_CLIENT_TRUST_CERT_PATH": config.tls_client_trust_cert_path,
        "TLS_SERVER_MODE": config.tls_server_mode,
        "TLS_CERT_PATH": config.tls_server_cert_path if of_tls else "",
        "TLS_KEY_PATH": config.tls_server_key_path if of_tls else "",
    }
    return {f"{ENVIRONMENT_PREFIX}{name}": text for name, text in found.items() if text}


def namesrv(options: argparse.Namespace) -> int:
    """A name server by itself."""
    settings = [*options.settings, *setting("listenPort", options.listen_port)]
    settings += logs.settings(options)
    environ = _without_broker(os.environ)
    config, warnings = load(NAMESRV_KEYS, file=options.file, options=settings, environ=environ)
    logs.start(options, config)
    warn(warnings)
    of_controller: ControllerConfig | None = None
    if config.enable_controller_in_namesrv:
        from .controller import of_name_server

        of_controller = of_name_server(options.file, settings, environ)
    if not is_loopback(config.bind_address) and not config.authentication_enabled:
        warn([OPEN_NAME_SERVER.format(config.bind_address, config.listen_port)])

    async def parts(stack: Stack) -> str:
        from ...namesrv import overview
        from ..endpoints import endpoint_of

        names = _name_server(config)
        await stack.start(names)
        endpoint = endpoint_of(names, overview, config, names.slices.run, config.listen_port)
        await stack.start(endpoint)
        controller = "" if of_controller is None else await _controller(stack, of_controller)
        return (
            f"the name server is ready on {names.address}{controller}{_page(endpoint.url)}; "
            f"try: {_command()} broker -n {_to_connect(config.bind_address, names.port)}"
        )

    return serving.run(parts)


def broker(options: argparse.Namespace) -> int:
    """A broker by itself, or a view of its settings."""
    from ...broker.settings.config import KEYS, describe, load_broker

    settings = [*options.settings, *setting("namesrvAddr", options.namesrv)]
    settings += logs.settings(options)
    config, warnings = load_broker(file=options.file, options=settings, environ=os.environ)
    if not options.print_config:
        logs.start(options, config)
    warn(warnings)
    if options.print_config:
        given = given_settings(KEYS, file=options.file, options=settings, environ=os.environ)
        origins = {each.key: each.source for each in given}
        if options.namesrv is not None:
            origins["namesrvAddr"] = "-n"
        return print_config(describe(config, origins), options.print_config)

    if options.enable_proxy and not config.namesrv_addr:
        raise CommandError("--enable-proxy needs a name server; give one with -n")

    async def parts(stack: Stack) -> str:
        if options.processes is None:
            port, page = await _start_broker(stack, config, is_member=options.with_parent)
            ready = (
                f"broker {config.broker_name} is ready on {_listens(config, port)}, "
                f"store {config.store_dir}{page}"
            )
        else:
            started = await starting.start_group(stack, config, settings, options, options.file)
            ready = f"brokers are ready: {started}"
        known = config.namesrv_addr or "none, so that no client finds it; give one with -n"
        grpc = ""
        if options.enable_proxy:
            words = () if options.proxy_config is None else ("-pc", str(options.proxy_config))
            # Its own file of settings says all.
            own = {} if words else _proxy_variables(config)
            grpc = await _proxy(stack, config.namesrv_addr, *words, own=own)
        return f"{ready}{grpc}; name servers: {known}"

    if not options.with_parent:
        return serving.run(parts)
    try:
        return serving.run(parts)
    except (CommandError, DamagedStore) as wrong:
        print(f"{STAYS_DOWN}{sanitize(' '.join(str(wrong).split()))}", flush=True)
        raise


async def _controller(stack: Stack, config: ControllerConfig) -> str:
    """Start a controller in this process; its part of the ready line."""
    from ...controller.server import Controller

    ours = Controller(config)
    await stack.start(ours)
    return f", controller {ours.address}, state {ours.engine.place}"


async def _proxy(stack: Stack, namesrv: str, *words: str, own: Mapping[str, str]) -> str:
    """Start a proxy as a child; its part of the ready line."""
    from ..child_command import ChildCommand

    child = ChildCommand(("proxy", "-n", namesrv, *words), variables=own)
    await stack.start(child)
    return ", " + child.ready.partition(",")[0].replace("the proxy is ready on", "proxy")


async def _start_broker(
    stack: Stack, config: "BrokerConfig", *, is_member: bool = False
) -> tuple[int, str]:
    """Start a broker, in controller mode a member, and its endpoint; its port and the text about
    its HTTP port. `is_member`: of a group under a supervisor."""
    from ...broker.controlled.member import Member
    from ...broker.server import Broker
    from ..broker_endpoint import broker_endpoint, broker_exporters

    with bytes_bar(RECOVERING, lines=True) as progress:
        make = partial(Broker, progress=progress)
        if config.enable_controller_mode:
            member = Member(config, make)
            await stack.start(member)
            port, current = member.ports.port, lambda: member.broker
        else:
            ours = make(config)
            await stack.start(ours)
            port, current = ours.port, lambda: ours
    endpoint = broker_endpoint(config, current)
    await stack.start(endpoint)
    for exporter in broker_exporters(config, current):
        await stack.start(exporter)
    if is_member:
        from ..processes.member_link import MemberLink

        await stack.start(MemberLink(ours))
    return port, _page(endpoint.url)


def _name_server(config: NamesrvConfig) -> "NameServer":
    from ...namesrv.server import NameServer

    try:
        return NameServer(config)
    except ValueError as wrong:  # its key-value config can't be read
        raise CommandError(str(wrong)) from wrong


def _without_broker(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for a name server.

    An environment is often shared with a broker, so variables of a broker only are no mistake.
    """
    if not any(name.startswith(ENVIRONMENT_PREFIX) for name in environ):
        return {}
    from ...broker.settings.config import KEYS

    of_broker = {*KEYS.accepted, *KEYS.fields} - NAMESRV_KEYS.fields.keys()
    dropped = {
        each.source.rpartition(" ")[2]
        for each in from_environment(environ, of_broker)
        if each.key in of_broker
    }
    return {name: text for name, text in environ.items() if name not in dropped}


def _is_only_of_namesrv(text: str, of_broker: Collection[str]) -> bool:
    key = text.partition("=")[0].strip()
    return key in NAMESRV_KEYS.fields and key not in of_broker


def _to_connect(bind_address: str, port: int) -> str:
    """The address for clients on this host of a server bound to `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind_address, bind_address)  # noqa: S104
    return host_text((host, port))


def _listens(config: "BrokerConfig", port: int) -> str:
    at = host_text((config.bind_address, port))
    return f"{at} (clients are told {host_text((config.broker_ip1, port))})"


def _command() -> str:
    """The command that runs this program from the present folder."""
    program = Path(sys.argv[0])
    if program.name != "aerobee" or shutil.which("aerobee") == str(program):
        return "aerobee"
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def _page(url: str | None) -> str:
    return f", HTTP {url}" if url else ""
