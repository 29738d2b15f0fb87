"""Starts Spark for a command, and explains in one sentence why it doesn't start.

A program with a session of its own needs only `aerobee.spark.register`.
"""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17  # of Spark 4
JVM_END_SECONDS_MAX = 15  # after its signal
JAVA_SECONDS_MAX = 30  # for `java -version`
PYTHON_SECONDS_MAX = 120  # for importing the source, on a machine that has much else to do

# Of Java's Thread.UncaughtExceptionHandler: it takes the thread, and the exception that ended it.
UNCAUGHT_SIGNATURE = "(Ljava/lang/Thread;Ljava/lang/Throwable;)V"

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Spark's default log settings fill the terminal.
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").as_uri()


class SparkFailed(Exception):
    """Spark didn't start or a job failed; the text is one sentence for the user."""


class Stopped(BaseException):
    """A signal ended the work before it was done; `number` is the signal's.

    It is no KeyboardInterrupt, because Py4J logs the traceback of those.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def session(app_name: str, master: str, *, delta: bool = False) -> Iterator[SparkSession]:
    """A session that ends with the block; SparkFailed for what Spark fails with, also inside.

    `delta` brings the jars and settings of the package delta-spark, which must be installed.
    """
    check_java()
    # The exception has what Py4J logs when the JVM ends; some of it goes to the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    if master.startswith("local"):
        # This Python has the packages that tasks need; another `python3` may not.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    check_python(os.environ.get("PYSPARK_PYTHON", "python3"))
    builder = (
        SparkSession.builder.master(master)
        .appName(app_name)
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG_SETTINGS}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Rows are counted by what executors tell in heartbeats, by default each 10 s.
        .config("spark.executor.heartbeatInterval", "1s")
        .config("spark.sql.session.timeZone", "UTC")
        # A new Python worker has that long to say hello; a busy machine needs more than 15 s.
        .config("spark.python.authenticate.socketTimeout", "120s")
    )
    if delta:
        builder = _with_delta(builder)
    try:
        with _signals_deferred():
            spark = builder.getOrCreate()
            _be_quiet(spark)
    except Stopped:
        _end_jvm()
        raise
    except (PySparkException, Py4JError) as wrong:
        todo = f"check the URL{_fitting_delta() if delta else ''}"
        raise SparkFailed(f"Spark did not start on {master}: {sentence(wrong)}; {todo}") from wrong
    try:
        yield spark
    except Stopped:
        _end_jvm()
        raise
    except (PySparkException, Py4JError) as wrong:
        raise SparkFailed(sentence(wrong)) from wrong
    finally:
        _stop(spark)


@contextmanager
def on_signals(tell: Callable[[int], None]) -> Iterator[None]:
    """Inside the block, SIGINT and SIGTERM call `tell` with their number and do nothing else."""
    before = {
        number: signal.signal(number, lambda number, frame: tell(number)) for number in SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended_by_signals() -> AbstractContextManager[None]:
    """SIGINT and SIGTERM end the block with `Stopped`, wherever it is."""

    def stop(number: int) -> None:
        raise Stopped(number)

    return on_signals(stop)


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Defers signals to the end of the block, then passes them to the previous handlers.

    Interrupting the start would leave a JVM behind. PySpark also installs its own SIGINT handler,
    which calls the JVM during another call and may hang.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    got: list[int] = []
    try:
        with on_signals(got.append):
            yield
    finally:
        if got:
            signal.raise_signal(got[0])


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _be_quiet(spark: SparkSession) -> None:
    """Silences what prints a traceback when the JVM ends.

    A signal to the process group reaches the JVM, too. It then ends while a stream still runs.
    """
    context = spark.sparkContext
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:  # PySpark's accumulator server
        server.handle_error = lambda request, address: None
    _silence_threads(context._jvm)


def _silence_threads(jvm: Any) -> None:
    """Keep Java from printing the exception that ends a thread of the JVM.

    What ends a stream's thread is in the query's exception, too. Spark's own handler is no choice:
    it ends the JVM when memory runs out, and the query's exception is lost with it.
    """
    java = jvm.java.lang
    signature = java.invoke.MethodType.fromMethodDescriptorString(UNCAUGHT_SIGNATURE, None)
    nothing = java.invoke.MethodHandles.empty(signature)
    interface = java.Class.forName("java.lang.Thread$UncaughtExceptionHandler")
    handler = java.invoke.MethodHandleProxies.asInterfaceInstance(interface, nothing)
    java.Thread.setDefaultUncaughtExceptionHandler(handler)


def _end_jvm() -> None:
    """End Spark's JVM by a signal, since an interrupted Py4J call can't be followed by another."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return
    process.terminate()
    try:
        process.wait(JVM_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()


def _stop(spark: SparkSession) -> None:
    """End Spark; its JVM may be gone already, since a signal to the process group ends it, too."""
    with suppress(PySparkException, Py4JError, OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark.stop()


def _with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    extension = "io.delta.sql.DeltaSparkSessionExtension"
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    builder = builder.config("spark.sql.extensions", extension)
    builder = builder.config("spark.sql.catalog.spark_catalog", catalog)
    configured: SparkSession.Builder = import_module("delta").configure_spark_with_delta_pip(
        builder
    )
    return configured


def _fitting_delta() -> str:
    """A further hint when Spark does not start: each Delta release fits few versions of Spark."""
    return (
        f", and whether Maven has delta-spark {version('delta_spark')} for PySpark "
        f"{version('pyspark')}; what it did not find is named above"
    )


def check_java() -> None:
    """SparkFailed when there is no Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    wanted = f"Spark needs Java {JAVA_VERSION_MIN} or newer"
    if java is None:
        raise SparkFailed(f"{wanted} and no java is on the PATH; install one or set JAVA_HOME")
    try:
        said = subprocess.run(  # noqa: S603 - our own argument list, no shell
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as wrong:
        raise SparkFailed(f"{wanted} and {java} does not run: {wrong}; set JAVA_HOME") from None
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        version = found[1] if found else said.strip()[:100]
        raise SparkFailed(f"{wanted}; {java} is {version}: install another or set JAVA_HOME")


def check_python(python: str) -> None:
    """SparkFailed when the Python of Spark's workers can't import the source.

    Spark plans a read in such a worker, on the driver's machine, so it must be able to.
    """
    if python == sys.executable:
        return
    wanted = f"Spark's workers run {python} (PYSPARK_PYTHON)"
    todo = 'run pip install "aerobee[spark]" there, or set PYSPARK_PYTHON to a Python that has it'
    try:
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            [python, "-c", "import aerobee.spark.read"],
            capture_output=True,
            text=True,
            timeout=PYTHON_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as wrong:
        raise SparkFailed(f"{wanted}, which does not run: {wrong}; {todo}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SparkFailed(f"{wanted}, which can't import the source: {said[-1]}; {todo}")


def sentence(wrong: Exception) -> str:
    """The cause in Spark's long text: the last one that it names, preferably one of aerobee's."""
    text = str(wrong)
    ours = re.findall(r"^(?:aerobee\.[\w.]+|ValueError): (.+)", text, re.MULTILINE)
    named = re.findall(
        r"^(?:(?:Caused by)?: )?(?:[\w$]+\.)+[\w$]*(?:Error|Exception): (.+)", text, re.MULTILINE
    )
    found = ours or named or text.strip().splitlines() or [type(wrong).__name__]
    return str(found[-1] if ours or named else found[0])
