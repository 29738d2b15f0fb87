"""`aerobee proxy`: the process that serves clients of RocketMQ 5 by gRPC."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...conf.described import Described, described
from ...conf.load import given_settings, text_of
from ...conf.secret import HIDDEN
from ...protocol.aio.connection import host_text
from ...proxy.settings.config import KEYS, ProxyConfig
from .. import logs, serving
from ..output.command_error import CommandError
from ..serving import Stack
from .daemon_options import (
    add_file,
    add_print_config,
    add_settings,
    loaded,
    print_config,
    setting,
)

if TYPE_CHECKING:
    from ...proxy.server import Proxy

SECRETS = ("innerClientAuthenticationCredentials", "httpToken")  # keys of settings
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
    """A proxy by itself, or a look at its settings."""
    settings = [
        *options.settings,
        *setting("namesrvAddr", options.namesrv),
        *setting("grpcServerPort", options.listen_port),
    ]
    config = loaded(KEYS, options.file, settings)
    if options.print_config:
        given = given_settings(KEYS, file=options.file, options=settings, environ=os.environ)
        rows = _described(config, {each.key: each.source for each in given})
        return print_config(rows, options.print_config)

    async def parts(stack: Stack) -> str:
        if config.grpc_workers > 1 and options.worker is None:
            where = await _workers(stack, config, _words(options))
        else:
            where = await _one(stack, config, options)
        if options.with_parent:
            serving.end_with_input()
        known = config.namesrv_addr or "127.0.0.1:9876"
        return f"the proxy is ready on {where}, name servers: {known}; {tls_note(config)}"

    return serving.run(parts)


async def _one(stack: Stack, config: ProxyConfig, options: argparse.Namespace) -> str:
    """Serve in this process; where."""
    from ..endpoints import proxy_endpoint

    ours = started(config, options.worker, options.worker_folder)
    await stack.start(ours)
    endpoint = proxy_endpoint(ours)
    await stack.start(endpoint)
    return f"{ours.address}, status page {endpoint.url}" if endpoint.url else ours.address


async def _workers(stack: Stack, config: ProxyConfig, words: list[str]) -> str:
    """Serve in processes that share the port; where."""
    from ..proxy_workers import ProxyWorkers

    started(config)  # tells here when packages are missing
    address = config.bind_address, config.grpc_server_port
    workers = ProxyWorkers(words, config.grpc_workers, address, config.http_port)
    await stack.start(workers)
    where = host_text((config.bind_address, workers.port))
    return f"{where}, {config.grpc_workers} workers"


def _words(options: argparse.Namespace) -> list[str]:
    """The arguments with which a worker has the same settings."""
    words = [word for each in options.settings for word in ("--set", each)]
    if options.namesrv is not None:
        words += ["-n", options.namesrv]
    if options.file is not None:
        words += ["-pc", str(options.file)]
    return words


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
