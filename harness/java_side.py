"""The real RocketMQ, from Maven Central, for the interop tests and the benchmark.

Works from a source checkout only: the Java programs live in tests/interop/java, and in examples/
for frameworks. They are compiled once per version and content into a cache outside the project.
After the first time nothing is fetched. Of older versions there are clients and tools only, and the
programs that they can run.
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
    "Orders",
    "Report",
    "Admin",
    "Produce",
    "Consume",
    "PullConsume",
    "Transact",
    "Ask",
    "Answer",
)
# Each stands for a version, with a folder of tests/interop that has a pom.xml and programs.
PROXY, GRPC = f"{ROCKETMQ_VERSION}-proxy", "5.0.8-grpc"
JDK_MAJOR_MIN = 11
TRAINING_SECONDS = 180
PORTS = range(20_000, 32_000)
HELD_PORTS_MAX = 128
ROOT = Path(__file__).resolve().parents[1]
INTEROP, EXAMPLES = ROOT / "tests" / "interop", ROOT / "examples"

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
# A server makes itself a certificate. A short key saves a third of the processor time of a start.
QUICK_SERVER = (*QUICK_START, "-Dio.netty.handler.ssl.util.selfSignedKeyStrength=1024")
# A client lives for seconds: the optimizing compiler costs more than it saves.
SHORT_LIVED = (
    *QUICK_START,
    "-Xmx256m",
    f"-Drmq.logback.configurationFile={INTEROP}/java/logback.xml",
)


_held: deque[int] = deque()  # sockets


class JavaMissing(RuntimeError):
    """The error for tools that the machine lacks, in one sentence."""


class NotCompiled(RuntimeError):
    """The Java programs have an error: what javac said."""


def missing() -> str | None:
    """The sentence about what is missing to run the Java side, or None."""
    for tool, package in (("java", "a JDK"), ("javac", "a JDK"), ("mvn", "Maven")):
        if shutil.which(tool) is None:
            return f"{tool} is not on the PATH; install {package} (JDK {JDK_MAJOR_MIN} or newer)"
    return None


def class_path(version: str = ROCKETMQ_VERSION) -> str:
    """Fetches the jars and compiles the programs if that is not done yet; the class path."""
    folder = version.partition("-")[2]
    options = _options(version, servers=version == ROCKETMQ_VERSION)
    return _prepare(version, INTEROP / folder / "pom.xml", options, _sources(version))


def jars(pom: Path) -> Path:
    """The folder with the jars that `pom` names, fetched once."""
    path = _prepare(f"{pom.parent.name}/{pom.stem}-{_digest([pom])}", pom, [], [])
    return Path(path).parent


def example(name: str, main: str, *, home: Path) -> list[str]:
    """The command line of the class `main` of a Maven project, the folder `name` of examples/."""
    project = EXAMPLES / name
    pom = project / "pom.xml"
    sources = sorted((project / "src" / "main" / "java").rglob("*.java"))
    path = _prepare(f"{name}-{_digest([pom])}", pom, [], sources)
    path = f"{project}/src/main/resources{os.pathsep}{path}"
    return ["java", *SHORT_LIVED, f"-Duser.home={home}", "-cp", path, main]


def server(main: str, *orders: str, home: Path, version: str) -> list[str]:
    """The command line of an older name server or broker, by its own start-up class `main`."""
    options = _options(version, servers=True)
    path = _prepare(f"{version}-servers", INTEROP / "pom.xml", options, [])
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for role in ("namesrv", "broker"):  # they insist on a file there
        shutil.copy(INTEROP / "java" / "logback.xml", home / "conf" / f"logback_{role}.xml")
    flags = ("-Xmx512m", *QUICK_SERVER, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
    return ["java", *flags, *OPEN_PACKAGES, "-cp", path, main, *orders]


def java(
    main: str,
    *orders: str,
    home: Path,
    flags: tuple[str, ...] = SHORT_LIVED,
    version: str = ROCKETMQ_VERSION,
) -> list[str]:
    """The command line of one of our programs. `home` takes RocketMQ's logs and small files.

    A program that lives for seconds takes its classes from an archive: see _archive.
    """
    home.mkdir(parents=True, exist_ok=True)
    path = class_path(version)
    if version == ROCKETMQ_VERSION and set(QUICK_START) <= set(flags):
        flags = (*flags, *_archive(path))
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
        path,
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
    for the last HELD_PORTS_MAX: a socket that is bound but not listening keeps other searches away
    and lets a server with SO_REUSEADDR listen. On other systems ports are not reserved.
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


def listens(port: int) -> bool:
    """True if a server listens on a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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


def _options(version: str, *, servers: bool) -> list[str]:
    """Maven's options for the pom.xml of tests/interop or of a folder there."""
    number = version.partition("-")[0]
    # Without the profile `older` name server and broker are there.
    return [f"-Drocketmq.version={number}", *([] if servers else ["-Dolder"])]


def _prepare(name: str, pom: Path, options: list[str], sources: list[Path]) -> str:
    """Fetches the jars that `pom` names and compiles `sources`, once; the class path."""
    lack = missing()
    if lack is not None:
        raise JavaMissing(lack)
    if not pom.exists():
        raise JavaMissing(f"{pom} does not exist: this needs a source checkout of aerobee")
    cache = _cache_folder() / name
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once prepare once
        jars = cache / "lib"
        if not jars.exists():
            _fetch(jars, pom, options)
        if not sources:
            return f"{jars}/*"
        programs = cache / f"programs-{_digest(sources)}.jar"
        if not programs.exists():
            _compile(jars, sources, programs)
    return f"{programs}{os.pathsep}{jars}/*"


def _fetch(jars: Path, pom: Path, options: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        goal = "dependency:copy-dependencies"
        where = f"-DoutputDirectory={scratch}/lib"
        argv = ["mvn", "-q", "-B", "-f", str(pom), goal, *options, where]
        _run(argv, JavaMissing)
        os.rename(f"{scratch}/lib", jars)


def _compile(jars: Path, sources: list[Path], programs: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        argv = [
            "javac",
            *(f"-J{flag}" for flag in QUICK_START),
            "-nowarn",
            "-cp",
            f"{jars}/*",
            "-d",
            f"{scratch}/classes",
        ]
        argv += map(str, sources)
        _run(argv, NotCompiled)
        jar = shutil.make_archive(f"{scratch}/programs", "zip", f"{scratch}/classes")
        os.rename(jar, programs)


def _archive(path: str) -> list[str]:
    """The JVM's option for an archive of the classes on the class path `path`, parsed and checked.

    It saves a third of the processor time of a client's start. A run of Training makes it once for
    these jars and this JDK. JDKs that can't make one, such as 11, do without.
    """
    java = Path(shutil.which("java") or "").resolve()
    programs, _, jars = path.partition(os.pathsep)
    parts = (Path(programs), Path(jars).parent, java)
    stamp = " ".join(f"{part} {part.stat().st_mtime_ns}" for part in parts)
    name = hashlib.sha256(stamp.encode()).hexdigest()[:16]
    archive = Path(programs).with_name(f"archive-{name}.jsa")
    with (archive.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once train once
        if not archive.exists():
            _train(path, archive)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.stat().st_size else []


def _train(path: str, archive: Path) -> None:
    """Makes the archive; an empty file where the JDK can't."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        home = Path(scratch)
        (names,), broker = free_ports(1), free_broker_port()
        address = f"127.0.0.1:{names}"
        common: dict[str, str | int] = {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"}
        store = common | {
            "namesrvAddr": address,
            "listenPort": broker,
            "storePathRootDir": f"{home}/store",
            "mappedFileSizeCommitLog": 16 << 20,
        }
        files = (
            write_properties(home / "namesrv.conf", common | {"listenPort": names}),
            write_properties(home / "broker.conf", store),
        )
        made = home / "archive.jsa"
        argv = [
            "java",
            f"-XX:ArchiveClassesAtExit={made}",
            *SHORT_LIVED,
            *QUICK_SERVER,
            *OPEN_PACKAGES,
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-cp",
            path,
            "Training",
            address,
            *map(str, files),
        ]
        try:
            subprocess.run(argv, capture_output=True, timeout=TRAINING_SECONDS, check=True)  # noqa: S603 - no shell
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            made.unlink(missing_ok=True)
        made.touch()
        os.rename(made, archive)


def _run(argv: list[str], failure: type[RuntimeError]) -> None:
    env = {"MAVEN_OPTS": " ".join(QUICK_START)} | os.environ  # half the processor time
    done = subprocess.run(argv, capture_output=True, text=True, env=env)  # noqa: S603 - no shell
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-2_000:]
        raise failure(f"{argv[0]} failed with exit code {done.returncode}: {output}")
