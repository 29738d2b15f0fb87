"""`aerobee ingest` where Spark is not there, or not all of it."""

from pathlib import Path

import pytest
from aerobee.client.base.security import Security
from aerobee.scripts.cli import main
from aerobee.scripts.commands import ingest


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (["py4j"], "of which py4j is not installed"),
        (["pyspark", "py4j"], "of which pyspark and py4j are not installed"),
        (["pandas"], "of which pandas is not installed"),
    ],
)
def test_a_missing_part_of_spark_is_said_with_what_brings_it(
    missing: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ingest, "find_spec", lambda name: None if name in missing else ...)
    assert main(["ingest", "orders", "--to", "new"]) == 1
    assert capsys.readouterr() == (
        "",
        f"aerobee ingest: ingest works through Spark, {says}; run pip install 'aerobee[spark]'\n",
    )


def test_tls_and_signatures_are_those_of_the_other_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    from aerobee.spark import ingest, session

    asked: list[Security] = []

    def measure(job: ingest.Ingest) -> ingest.Span:
        asked.append(job.security)
        raise session.SparkFailed("that is enough")

    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setattr(ingest, "measure", measure)
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "reports")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "a-secret")
    words = ["ingest", "orders", "--to", str(tmp_path / "new")]
    assert main([*words, "--tls-insecure"]) == 1
    assert main([*words, "--tls-ca", "ca.pem"]) == 1
    assert capsys.readouterr().err == "aerobee ingest: that is enough\n" * 2
    keys = ("reports", "a-secret")
    assert asked == [Security(*keys, tls_insecure=True), Security(*keys, tls_ca="ca.pem")]
    options = ingest.source_options(ingest.Ingest("orders", "new", security=asked[1]))
    assert (options["accessKey"], options["tlsCa"]) == ("reports", "ca.pem")
