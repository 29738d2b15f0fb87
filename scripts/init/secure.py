"""`aerobee init --secure DIR`: settings of all daemons but the console, with everything closed.

They speak TLS only, with certificates of an authority that is made for them, or with files that are
given. Users prove themselves at each; slaves prove a secret to their master; metrics and status
pages ask for a token. All secrets are random. Files with secrets have mode 0600, DIR has 0700.
"""

import argparse
import importlib.util
import json
import re
import secrets
import shlex
import time
from pathlib import Path
from string import Template

from ...protocol.security.secret_mode import fault_of
from ..output.command_error import CommandError

ADMIN = "admin"
SECRET_BYTES = 24
HOSTS = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"[A-Za-z0-9*._:-]{1,253}")
GIVEN = ("certificate", "key", "authority")


def add_options(parser: argparse.ArgumentParser, kinds: "argparse._MutuallyExclusiveGroup") -> None:
    """The options of `aerobee init` for a secure configuration."""
    kinds.add_argument(
        "--secure",
        metavar="DIR",
        help="write a configuration with TLS, an administrator, access control at all daemons, a "
        "secret for replication and a token for metrics into the new folder DIR",
    )
    add = parser.add_argument
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --secure: a name or address that clients connect to, besides localhost; may be "
        "repeated",
    )
    add("--certificate", metavar="FILE", help="with --secure: the servers' certificate, in PEM")
    add("--key", metavar="FILE", help="with --secure: the certificate's key, in PEM")
    add("--authority", metavar="FILE", help="with --secure: what signed the certificate, in PEM")


def run(options: argparse.Namespace) -> int:
    """Write the folder and say what comes next."""
    folder = Path(options.secure).expanduser().absolute()
    given = {name: getattr(options, name) for name in GIVEN if getattr(options, name)}
    write(folder, (*HOSTS, *options.host), given)
    print(f"written {folder}: settings, certificates and secrets; keep it to yourself")
    here = shlex.quote(str(folder))
    print("start the name server, the broker, and a client:")
    print(f"  aerobee namesrv -c {here}/namesrv.yaml")
    print(f"  aerobee broker -c {here}/broker.yaml")
    print(f"  set -a; . {here}/client.env; set +a; echo hello | aerobee pub greetings")
    print("and where you need them, a controller and a gRPC proxy:")
    print(f"  aerobee controller -c {here}/controller.yaml")
    print(f"  aerobee proxy -c {here}/proxy.yaml")
    return 0


def write(folder: Path, hosts: tuple[str, ...], given: dict[str, str]) -> None:
    """Write the configuration into `folder`, which must not exist yet.

    `given` has the files certificate, key and authority, or none of them: then an authority is
    made, and a certificate for `hosts`. CommandError, and nothing is written, where that can't be.
    """
    if not folder.name or folder.exists():
        raise CommandError(f"{folder} exists already; name a new folder, so no secret is replaced")
    wrong = [host for host in hosts if HOST.fullmatch(host) is None]
    if wrong:
        raise CommandError(f"--host {wrong[0]!r} is neither a host name nor an IP address")
    texts = _certificates(folder, hosts, given)
    password = secrets.token_urlsafe(SECRET_BYTES)
    texts["http.token"] = secrets.token_urlsafe(SECRET_BYTES) + "\n"
    texts["replication.secret"] = secrets.token_urlsafe(SECRET_BYTES) + "\n"
    authority = given.get("authority", str(folder / "authority.pem"))
    places = {
        "kv_config": str(folder / "namesrv" / "kvConfig.json"),
        "store": str(folder / "store"),
        "controller_store": str(folder / "controller"),
        "http_token": f"file:{folder / 'http.token'}",
        "replication_secret": f"file:{folder / 'replication.secret'}",
        "certificate": given.get("certificate", str(folder / "server.pem")),
        "key": given.get("key", str(folder / "server.key")),
        "authority": authority,
        "first_user": json.dumps({"username": ADMIN, "password": password}),
        "own_credentials": json.dumps({"accessKey": ADMIN, "secretKey": password}),
    }
    values = {name: json.dumps(text) for name, text in places.items()}  # which are YAML as well
    for path in sorted(Path(__file__).with_name("templates").glob("*.yaml")):
        texts[path.name] = Template(path.read_text("utf-8")).substitute(values)
    client = {
        "AEROBEE_ACCESS_KEY": ADMIN,
        "AEROBEE_SECRET_KEY": password,
        "AEROBEE_TLS_CA": authority,
    }
    texts["client.env"] = "".join(f"{key}={shlex.quote(value)}\n" for key, value in client.items())
    _write(folder, texts)


def _certificates(folder: Path, hosts: tuple[str, ...], given: dict[str, str]) -> dict[str, str]:
    """The texts of new certificates by file name; none where files are given."""
    if given:
        missing = [name for name in GIVEN if name not in given]
        if missing:
            raise CommandError(
                f"--{missing[0]} is missing: give all of --certificate, --key and --authority, or "
                "none of them, and an authority is made"
            )
        for name, path in given.items():
            given[name] = str(Path(path).expanduser().absolute())
            if not Path(given[name]).is_file():
                raise CommandError(f"--{name} {path} is no file; correct the path")
        why = fault_of(given["key"], Path(given["key"]).stat().st_mode)
        if why:
            raise CommandError(f"--key can't be used: {why}")
        return {}
    if importlib.util.find_spec("cryptography") is None:
        raise CommandError(
            "certificates are made by the package cryptography, which is not installed; run pip "
            "install 'aerobee[tls]', or give --certificate, --key and --authority"
        )
    from ...protocol.security.self_signed import Authority

    authority = Authority(time.time())
    server = authority.issue(hosts)
    return {
        "authority.pem": authority.own.certificate.decode(),
        "authority.key": authority.own.key.decode(),
        "server.pem": server.certificate.decode(),
        "server.key": server.key.decode(),
    }


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, mode=0o700)
        for name, text in texts.items():
            path = folder / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
    except OSError as wrong:
        raise CommandError(f"can't write {folder}: {wrong.strerror or wrong}") from None
