"""`aerobee proxy`: the process that serves clients of RocketMQ 5 by gRPC."""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...conf import log_levels
from ...conf.described import Described, described
from ...conf.load import given_settings, load, text_of
from ...conf.secret import HIDDEN
from ...protocol.aio.connection import host_text
from ...protocol.aio.slices import step_per_tick
from ...proxy.settings.config import KEYS, ProxyConfig
from .. import logs, serving
from ..output.command_error import CommandError
from ..serving import Stack
from .daemon_options import add_file, add_print_config, add_settings, loaded, print_config, setting

if TYPE_CHECKING:
    from ...proxy.server import Proxy
    from ..proxy_workers import ProxyWorkers

log = logging.getLogger(__name__)

# Keys of settings.
SECRETS = ("innerClientAuthenticationCredentials", "httpToken", "metricsGrpcExporterHeader")
NO_PAGES = -1  # as httpPort
MISSING = (
    "the proxy needs the packages h2 and protobuf, and {} is not installed; run "
    "pip install 'aerobee[grpc]'"
)


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("-n", "--namesrv", metavar="ADDR;ADDR", help="name servers of the brokers behind it")
    add_file(parser, "-pc", "-c", "--config", kinds="rmq-proxy.json, properties")
    add("--listen-port", metavar="N", help="0: any free one (8081)")
    add("--with-parent", action="store_true", help="end when standard input closes")
    add("--worker", metavar="N/COUNT", help=argparse.SUPPRESS)  # of a worker that a proxy starts
    add("--worker-folder", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    add_print_config(parser)
    add_settings(parser)
    logs.add_options(parser, "info", logs.FULL)
    parser.set_defaults(run=proxy)


def proxy(options: argparse.Namespace) -> int:
    """A proxy by itself, or a view of its settings."""
    settings = [
        *options.settings,
        *setting("namesrvAddr", options.namesrv),
        *setting("grpcServerPort", options.listen_port),
        *logs.settings(options),
    ]
    config = loaded(KEYS, options.file, settings)
    if options.print_config:
        given = given_settings(KEYS, file=options.file, options=settings, environ=os.environ)
        rows = _described(config, {each.key: each.source for each in given})
        return print_config(rows, options.print_config)
    logs.start(options, config)

    async def parts(stack: Stack) -> str:
        use: Callable[[str], None] = log_levels.use
        if config.grpc_workers > 1 and options.worker is None:
            workers = await _workers(stack, config, _words(options, config))
            use = workers.use_levels
            where = (
                f"{host_text((config.bind_address, workers.port))}, {config.grpc_workers} workers"
            )
        else:
            where = await _one(stack, config, options)
        if options.with_parent:
            serving.end_with_input(log_levels.use)
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, lambda: _read_again(options, settings, use)
        )
        known = config.namesrv_addr or "127.0.0.1:9876"
        return f"the proxy is ready on {where}, name servers: {known}; {tls_note(config)}"

    return serving.run(parts)


async def _one(stack: Stack, config: ProxyConfig, options: argparse.Namespace) -> str:
    """Serve in this process; where."""
    ours = started(config, options.worker, options.worker_folder)
    await stack.start(ours)
    if ours.spans is not None:
        from ..collector import SpanExport

        await stack.start(SpanExport(config, lambda: ours.spans, step_per_tick))
    if config.http_port == NO_PAGES:
        return ours.address
    # The pages need aiohttp, whose import takes as long as all others; calls are served meanwhile.
    await asyncio.to_thread(import_module, "..endpoints", __package__)
    from ...proxy import overview
    from ..endpoints import endpoint_of

    endpoint = endpoint_of(ours, overview, config, step_per_tick, ours.port)
    await stack.start(endpoint)
    return f"{ours.address}, HTTP {endpoint.url}"


def _read_again(
    options: argparse.Namespace, settings: list[str], use: Callable[[str], None]
) -> None:
    """Take logLevel from the settings as they are now; a fault is logged, and nothing changes."""
    try:
        config, _ = load(KEYS, file=options.file, options=settings, environ=os.environ)
    except ValueError as wrong:
        log.error("logLevel stays as it was: %s", wrong)
        return
    use(config.log_level)
    log.info("logLevel is %s", config.log_level or "as at the start")


async def _workers(stack: Stack, config: ProxyConfig, words: list[str]) -> "ProxyWorkers":
    """Serve in processes that share the port."""
    from ..proxy_workers import ProxyWorkers

    _check_packages()  # once, before any worker starts
    address = config.bind_address, config.grpc_server_port
    workers = ProxyWorkers(words, config.grpc_workers, address, config.http_port)
    await stack.start(workers)
    return workers


def _words(options: argparse.Namespace, config: ProxyConfig) -> list[str]:
    """The arguments with which a worker has the same settings, and logs to standard error."""
    words = [word for each in options.settings for word in ("--set", each)]
    if options.namesrv is not None:
        words += ["-n", options.namesrv]
    if options.file is not None:
        words += ["-pc", str(options.file)]
    return words + logs.words(options, config)


def started(config: ProxyConfig, worker: str | None = None, folder: Path | None = None) -> "Proxy":
    """A proxy, not started yet; CommandError without its packages. `worker` is "N/COUNT"."""
    try:
        from ...proxy.http2.balance import Worker
        from ...proxy.server import Proxy
    except ImportError as wrong:
        raise CommandError(MISSING.format(wrong.name)) from None
    if worker is None or folder is None:
        return Proxy(config)
    number, _, count = worker.partition("/")
    return Proxy(config, worker=Worker(folder, int(number), int(count)))


def _check_packages() -> None:
    """CommandError without the packages that a worker imports; this process needs none of them."""
    for names in (("jh2", "h2"), ("google.protobuf",)):
        if not any(map(_is_installed, names)):
            raise CommandError(MISSING.format(names[-1]))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def tls_note(config: ProxyConfig) -> str:
    """Which clients get in with these settings of TLS."""
    if config.tls_server_mode == "disabled":
        return "TLS is off: clients of Java, Go, C++ and C# must switch it off, too"
    if config.tls_cert_path or config.tls_key_path:
        found = "TLS with your certificate"
    else:
        found = (
            "TLS with a certificate made now, which clients of Java, Go, C++ and C# accept and "
            "those of Python, Node.js and Rust don't"
        )
    if config.tls_server_mode == "permissive":
        return f"{found}; plain connections on the same port"
    return f"{found}; no plain connections"


def _described(config: ProxyConfig, origins: dict[str, str]) -> list[Described]:
    return described(KEYS, _values(config), _values(ProxyConfig()), origins)


def _values(config: ProxyConfig) -> dict[str, str]:
    values = {key: text_of(getattr(config, info.name)) for key, info in KEYS.fields.items()}
    for key in SECRETS:
        if values[key]:
            values[key] = HIDDEN
    return values
