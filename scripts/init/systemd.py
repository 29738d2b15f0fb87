"""`aerobee init --systemd DIR`: units of all daemons, their settings, and the user they run as.

The layout is Debian's: settings in /etc/aerobee, everything that a daemon writes in
/var/lib/aerobee, units in /etc/systemd/system. DIR is the root of it: / for this machine, or a
folder that a package is made of. A file that is there already is never replaced.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ... import conf
from ..output.command_error import CommandError

UNITS = "etc/systemd/system"
SETTINGS = "etc/aerobee"
USERS, FILES = "etc/sysusers.d/aerobee.conf", "etc/tmpfiles.d/aerobee.conf"
STATE = "/var/lib/aerobee"
NAME_SERVER = "127.0.0.1:9876"
# What units don't see: ProtectHome and PrivateTmp.
UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 - no file is made
PROGRAM = re.compile(r"/[\w./+@-]*")

UNIT = Path(__file__).with_name("templates").joinpath("unit.service").read_text("utf-8")
STATE_FOLDER = "StateDirectory=aerobee\nStateDirectoryMode=0750"
COMPILED_FOLDER = """
# For what numba compiles; so MemoryDenyWriteExecute can't be set.
CacheDirectory=aerobee
Environment=NUMBA_CACHE_DIR=/var/cache/aerobee"""
CONSOLE_OPTIONS = f"""\
# The options of `aerobee console`. Its users: sudo -u aerobee aerobee console user --help
CONSOLE_OPTIONS=-n {NAME_SERVER} --data {STATE}/console --audit {STATE}/console-audit.jsonl
"""


@dataclass(frozen=True)
class Daemon:
    """A unit: its description, its settings, and what is its own in the unit."""

    description: str
    settings: dict[str, str]
    after: str = ""
    stop_seconds: int = 30
    more: str = ""


# The name of a daemon is its command, and the name of its file of settings.
DAEMONS = {
    "namesrv": Daemon("name server", {"kvConfigPath": f"{STATE}/namesrv/kvConfig.json"}),
    "broker": Daemon(
        "broker",
        {"storePathRootDir": f"{STATE}/store", "namesrvAddr": NAME_SERVER},
        after=" aerobee-namesrv.service aerobee-controller.service",
        # A stop syncs the store: much unsynced data on a slow disk takes this long.
        stop_seconds=60,
        more=COMPILED_FOLDER,
    ),
    "controller": Daemon("controller", {"controllerStorePath": f"{STATE}/controller"}),
    "proxy": Daemon(
        "gRPC proxy",
        {"namesrvAddr": NAME_SERVER},
        after=" aerobee-broker.service",
        stop_seconds=60,  # more than grpcShutdownTimeSeconds
    ),
    "console": Daemon("console", {}, after=" aerobee-namesrv.service"),
}


def add_options(parser: argparse.ArgumentParser, kinds: "argparse._MutuallyExclusiveGroup") -> None:
    """The options of `aerobee init` for units."""
    kinds.add_argument(
        "--systemd",
        type=_start,
        metavar="DIR",
        help="write units for systemd and settings into a Debian-style layout below DIR (/: here)",
    )
    parser.add_argument(
        "--program",
        default="",
        metavar="FILE",
        help="with --systemd: the command that units start (this one)",
    )


def run(options: argparse.Namespace) -> int:
    """Write all files, or none when one is there. CommandError when units can't see the program
    that runs here and no other is named."""
    program = options.program or _this_program()
    unseen = (
        f"the units would start {program}, but see no home folder and no temporary file "
        "(ProtectHome, PrivateTmp)"
    )
    if not options.program and program.startswith(UNSEEN):
        raise CommandError(
            f"{unseen}; install aerobee elsewhere, such as in /opt/aerobee, and run that one, or "
            "give the path of its command as --program"
        )
    written = write(options.systemd, program)
    for path in written:
        print(f"written {path}")
    if program.startswith(UNSEEN):
        print(f"note: {unseen}; install aerobee elsewhere, such as in /opt/aerobee")
    print(
        "next: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload; look "
        "through /etc/aerobee; then systemctl enable --now aerobee-namesrv aerobee-broker"
    )
    return 0


def write(root: Path, program: str) -> list[Path]:
    """Write the layout below `root`; `program` is the absolute path of `aerobee` in units.

    CommandError, and nothing is written, when a file is there or `program` can't be in a unit.
    """
    if PROGRAM.fullmatch(program) is None:
        raise CommandError(
            f"--program is {program!r}, but must be an absolute path of letters, digits and "
            "./_+@-, as units have it; install aerobee elsewhere, or give the path of a link"
        )
    texts = {root / place: text for place, text in layout(program).items()}
    there = [str(path) for path in texts if path.exists()]
    if there:
        raise CommandError(
            f"nothing was written, since {', '.join(there)} exist{'s' if len(there) == 1 else ''}; "
            "move what is there away, or name another DIR and compare"
        )
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # The settings may get secrets; systemd-tmpfiles lets the daemons read them.
        is_secret = path.parent == root / SETTINGS
        with open(path, "x", encoding="utf-8") as file:
            path.chmod(0o600 if is_secret else 0o644)
            file.write(text)
    return list(texts)


def layout(program: str) -> dict[str, str]:
    """The text of each file, by its place below the root."""
    found = {
        USERS: f'u aerobee - "aerobee message broker" {STATE} /usr/sbin/nologin\n',
        FILES: (
            f"d {STATE} 0750 aerobee aerobee -\n"
            "d /etc/aerobee 0750 root aerobee -\n"
            "z /etc/aerobee/* 0640 root aerobee -\n"
        ),
    }
    for name, daemon in DAEMONS.items():
        words, more = f"{name} -c /etc/aerobee/{name}.yaml", STATE_FOLDER + daemon.more
        if name == "console":
            words = "console $CONSOLE_OPTIONS"
            more += "\nEnvironmentFile=/etc/aerobee/console.env"
            found[f"{SETTINGS}/console.env"] = CONSOLE_OPTIONS
        else:
            found[f"{SETTINGS}/{name}.yaml"] = _settings(name, daemon.settings)
        found[f"{UNITS}/aerobee-{name}.service"] = UNIT.format(
            description=daemon.description,
            after=daemon.after,
            program=program,
            words=words,
            stop_seconds=daemon.stop_seconds,
            more=more,
        )
    return found


def _settings(name: str, settings: dict[str, str]) -> str:
    """The file of settings that comes with aerobee, with these set."""
    text = (Path(conf.__file__).parent / f"{name}.yaml").read_text("utf-8")
    for key, value in settings.items():
        text, count = re.subn(rf"^#{key}:.*$", f"{key}: {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    return text


def _start(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("DIR is empty; write / for this machine")
    return Path(text)


def _this_program() -> str:
    own = Path(sys.argv[0]).absolute()
    return str(own if own.name == "aerobee" else Path(sys.executable).parent / "aerobee")
