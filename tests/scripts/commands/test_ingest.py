"""`aerobee ingest` where Spark is not there, or not all of it."""

import pytest
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
