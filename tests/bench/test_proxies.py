"""What the measures of gRPC write when one of them fails."""

import pytest
from aerobee.bench.loads.loadgen import LoadFailed
from aerobee.bench.proxies import tried
from aerobee.bench.report import MISSED, Compared, Row, block


def test_a_measure_that_fails_is_a_row_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def failing() -> list[Row]:
        raise ExceptionGroup("several", [LoadFailed("no | messages\ncame")])

    good = Compared("SEND", "us", 2.0, 1.0, "<= 1")
    rows = tried("ACK", failing) + tried("SEND", lambda: [good])
    assert rows[1] == good
    assert capsys.readouterr().err == "ACK failed: LoadFailed: no | messages came\n"
    written = block("grpc", "gRPC", ["--only", "grpc"], 1, rows, 0.0, None)
    (line,) = [line for line in written.splitlines() if line.startswith("| ACK")]
    assert MISSED in line
    assert "LoadFailed: no / messages came" in line
