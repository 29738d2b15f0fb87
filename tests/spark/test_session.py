"""What a command says when Spark or Java isn't as it must be."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from aerobee.spark.session import (
    SparkFailed,
    _is_not_of_py4j,
    check_java,
    check_python,
    sentence,
    session,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .programs import SPARK_SECONDS


def make_java(folder: Path, says: str) -> None:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)


def test_a_new_enough_java_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "bin", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    check_java()


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "17 or newer; .*java is 11: install another"),
        ('java version "1.8.0_292"', "17 or newer; .*java is 1: install another"),
        ("no such file", "java is no such file: install another"),
    ],
)
def test_another_java_is_refused(
    says: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "bin", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkFailed, match=words):
        check_java()


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkFailed, match="no java is on the PATH; install one or set JAVA_HOME"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkFailed, match=r"does not run: .*set JAVA_HOME"):
        check_java()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "An error occurred while calling o69.save.\n"
            ": org.apache.spark.SparkException: Job aborted.\n\tat a.b(C.java:1)\n"
            "Caused by: java.io.IOException: Mkdirs failed\n\tat d.e(F.java:2)\n\t... 1 more",
            "Mkdirs failed",
        ),
        (
            "[PYTHON_DATA_SOURCE_ERROR] failed\n  File 'x.py', line 1\n"
            "aerobee.lake.rows.ranges.DataLossError: nothing is at offset 5\n"
            "Caused by: java.lang.RuntimeException: something later",
            "nothing is at offset 5",
        ),
        ("Traceback\nValueError: option subscribe is missing\n", "option subscribe is missing"),
        ("[PATH_ALREADY_EXISTS] it is there", "[PATH_ALREADY_EXISTS] it is there"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_is_found_in_sparks_long_text(text: str, cause: str) -> None:
    assert sentence(RuntimeError(text)) == cause


def test_a_python_that_can_import_the_source_will_do(tmp_path: Path) -> None:
    check_python(sys.executable)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    check_python(str(other))


def test_a_python_without_pyarrow_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError(\"No module named 'pyarrow'\")\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setattr("aerobee.spark.session.check_java", lambda: None)
    words = "PYSPARK_PYTHON.*can't import the source: .*No module named 'pyarrow'; run pip install"
    with pytest.raises(SparkFailed, match=words), session("test", "local[1]"):
        pass


def test_a_python_that_is_not_there_is_told() -> None:
    with pytest.raises(SparkFailed, match=r"run /no/python .*does not run.*set PYSPARK_PYTHON"):
        check_python("/no/python")


def test_a_delta_that_does_not_fit_this_pyspark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's launcher ends when Maven has no jars for the two versions."""

    def fail(builder: object) -> None:
        raise PySparkException("[JAVA_GATEWAY_EXITED] Java gateway process exited")

    versions = {"delta_spark": "4.4.0", "pyspark": "4.3.0"}
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr("aerobee.spark.session.check_java", lambda: None)
    monkeypatch.setattr("aerobee.spark.session.version", versions.__getitem__)
    monkeypatch.setattr("aerobee.spark.session._with_delta", lambda builder: builder)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    words = "GATEWAY_EXITED.*whether Maven has delta-spark 4.4.0 for PySpark 4.3.0"
    with pytest.raises(SparkFailed, match=words), session("test", "local[1]", delta=True):
        pass
    with pytest.raises(SparkFailed, match=r"check the URL$"), session("test", "local[1]"):
        pass


def test_what_py4j_logs_about_the_end_of_a_jvm_is_not_shown() -> None:
    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "sending", (), None)

    assert not _is_not_of_py4j(record("/site-packages/py4j/java_gateway.py"))
    assert _is_not_of_py4j(record("/site-packages/aerobee/spark/session.py"))


@pytest.mark.spark
@pytest.mark.usefixtures("spark_is_here")
def test_an_error_that_ends_a_thread_of_the_jvm_is_not_shown_and_leaves_the_jvm_alive() -> None:
    """A stream's thread ends so when the JVM gets the signal first, or when memory runs out."""
    program, message = Path(__file__).with_name("uncaught_program.py"), "no thread survives this"
    argv = [sys.executable, str(program), message]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SPARK_SECONDS)
    assert (done.returncode, done.stdout) == (0, "the thread is TERMINATED, 7 rows\n"), done.stderr
    assert message not in done.stderr
