"""The real RocketMQ, from Maven Central, for the interop tests and the benchmark.

Works from a source checkout only: the Java programs live in tests/interop/java and are compiled
once per version and content into a cache outside the project. After the first time nothing is
fetched. Of older versions there are clients and tools only, and the programs that they can run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import ExitStack
from pathlib import Path

from .child import Reporter

ROCKETMQ_VERSION = "5.3.3"
# What older clients run as well; where they differ, a class in tests/interop/older stands in.
OLDER_PROGRAMS = (
    *("Orders", "Report", "Admin", "Produce", "Consume", "PullConsume", "Transact"),
    *("Ask", "Answer"),
)
# Each stands for a version, with a folder of tests/interop that has a pom.xml and programs.
PROXY, GRPC = f"{ROCKETMQ_VERSION}-proxy", "5.0.8-grpc"
JDK_MAJOR_MIN = 11
PORTS = range(20_000, 32_000)
HELD_PORTS_MAX = 128
INTEROP = Path(__file__).resolve().parents[2] / "tests" / "interop"

# The broker's mapped files and Netty reach into these packages; Java 17 closes them.
OPEN_PACKAGES = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
# No optimizing compiler and one thread for the garbage: a fifth less processor time for a start.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# A client lives for seconds: the optimizing compiler costs more than it saves.
SHORT_LIVED = (
    *QUICK_START,
    "-Xmx256m",
    f"-Drmq.logback.configurationFile={INTEROP}/java/logback.xml",
)


_held: deque[int] = deque()  # sockets


class JavaMissing(RuntimeError):
    """What the machine lacks, in one sentence."""


class NotCompiled(RuntimeError):
    """The Java programs have an error: what javac said."""


def missing() -> str | None:
    """What is missing to run the Java side, or None."""
    for tool, package in (("java", "a JDK"), ("javac", "a JDK"), ("mvn", "Maven")):
        if shutil.which(tool) is None:
            return f"{tool} is not on the PATH; install {package} (JDK {JDK_MAJOR_MIN} or newer)"
    return None


def class_path(version: str = ROCKETMQ_VERSION) -> str:
    """Fetches the jars and compiles the programs if that is not done yet; the class path."""
    lack = missing()
    if lack is not None:
        raise JavaMissing(lack)
    if not (INTEROP / "pom.xml").exists():
        raise JavaMissing(f"{INTEROP} does not exist: this needs a source checkout of aerobee")
    cache = _cache_folder() / version
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once prepare once
        jars = cache / "lib"
        if not jars.exists():
            _fetch(jars, version, servers=version == ROCKETMQ_VERSION)
        sources = _sources(version)
        classes = cache / f"classes-{_digest(sources)}"
        if not classes.exists():
            _compile(jars, sources, classes)
    return f"{classes}{os.pathsep}{jars}/*"


def server(main: str, *orders: str, home: Path, version: str) -> list[str]:
    """The command line of an older name server or broker, by its own start-up class `main`."""
    lack = missing()
    if lack is not None:
        raise JavaMissing(lack)
    cache = _cache_folder() / f"{version}-servers"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        jars = cache / "lib"
        if not jars.exists():
            _fetch(jars, version, servers=True)
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for role in ("namesrv", "broker"):  # they insist on a file there
        shutil.copy(INTEROP / "java" / "logback.xml", home / "conf" / f"logback_{role}.xml")
    flags = ("-Xmx512m", *QUICK_START, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
    return ["java", *flags, *OPEN_PACKAGES, "-cp", f"{jars}/*", main, *orders]


def java(
    main: str,
    *orders: str,
    home: Path,
    flags: tuple[str, ...] = SHORT_LIVED,
    version: str = ROCKETMQ_VERSION,
) -> list[str]:
    """The command line of one of our programs. `home` takes RocketMQ's logs and small files."""
    home.mkdir(parents=True, exist_ok=True)
    if version != ROCKETMQ_VERSION:  # an older mqadmin insists on a file there
        (home / "conf").mkdir(exist_ok=True)
        shutil.copy(INTEROP / "java" / "logback.xml", home / "conf" / "logback_tools.xml")
    return [
        "java",
        *flags,
        *OPEN_PACKAGES,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        "-cp",
        class_path(version),
        main,
        *orders,
    ]


def start(
    main: str,
    *orders: str,
    home: Path,
    flags: tuple[str, ...] = SHORT_LIVED,
    version: str = ROCKETMQ_VERSION,
) -> Reporter:
    """Starts one of our programs in `home`; its standard error goes to a file there."""
    argv = java(main, *orders, home=home, flags=flags, version=version)
    # The variable would win over the addresses that a test gives.
    return Reporter(argv, home / f"{main}.stderr", env={"NAMESRV_ADDR": ""}, cwd=home)


def free_ports(count: int, near: tuple[int, ...] = ()) -> list[int]:
    """`count` ports on loopback for servers; those at the distances `near` are free as well.

    They lie below the ports that systems give to outgoing connections. On Linux they stay ours,
    for the last HELD_PORTS_MAX: bound without listening they are free for a server, all of which
    set SO_REUSEADDR there, and taken for who looks for a free one. Elsewhere nobody holds them.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with ExitStack() as held:
            try:
                sockets = [held.enter_context(socket.socket()) for _ in (port, *near)]
                for each, distance in zip(sockets, (0, *near), strict=True):
                    each.bind(("127.0.0.1", port + distance))
            except OSError:
                continue
            if sys.platform == "linux":
                held.pop_all()
                for each in sockets:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    _held.append(each.detach())
                while len(_held) > HELD_PORTS_MAX:
                    os.close(_held.popleft())
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} free ports were wanted from {PORTS}, only {len(found)} are there")


def free_broker_port() -> int:
    """A port whose neighbours are free as well: VIP is the port - 2, replication + 1."""
    return free_ports(1, (-2, 1))[0]


def write_properties(path: Path, properties: dict[str, str | int]) -> Path:
    """Writes a RocketMQ properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "aerobee-interop"


def _sources(version: str) -> list[Path]:
    if version == ROCKETMQ_VERSION:
        return sorted((INTEROP / "java").glob("*.java"))
    if folder := version.partition("-")[2]:
        shared = (INTEROP / "java" / f"{name}.java" for name in ("Orders", "Report"))
        return [*sorted((INTEROP / folder).glob("*.java")), *shared]
    return [
        *sorted((INTEROP / "older").glob("*.java")),
        *(INTEROP / "java" / f"{name}.java" for name in OLDER_PROGRAMS),
    ]


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _fetch(jars: Path, version: str, *, servers: bool) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        goal = "dependency:copy-dependencies"
        number, _, folder = version.partition("-")
        where = [f"-Drocketmq.version={number}", f"-DoutputDirectory={scratch}/lib"]
        if not servers:
            where.append("-Dolder")  # the profile without name server and broker
        argv = ["mvn", "-q", "-B", "-f", str(INTEROP / folder / "pom.xml"), goal, *where]
        _run(argv, JavaMissing)
        os.rename(f"{scratch}/lib", jars)


def _compile(jars: Path, sources: list[Path], classes: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        argv = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", f"{scratch}/classes"]
        argv += map(str, sources)
        _run(argv, NotCompiled)
        os.rename(f"{scratch}/classes", classes)


def _run(argv: list[str], failure: type[RuntimeError]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)  # noqa: S603 - no shell
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-2_000:]
        raise failure(f"{argv[0]} failed with exit code {done.returncode}: {output}")
