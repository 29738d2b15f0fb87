"""What the measures of gRPC write when one of them fails."""

from aerobee.bench.bench_report import MISSED, Measured, block
from aerobee.bench.grpc_measures import tried
from aerobee.bench.loads.loadgen import LoadFailed
from aerobee.bench.measures import Compared


def test_a_measure_that_fails_is_a_row_with_its_reason() -> None:
    def failing() -> list[Compared]:
        raise ExceptionGroup("several", [LoadFailed("no | messages\ncame")])

    said: list[str] = []
    good = Compared("SEND", "us", 2.0, 1.0, "<= 1", True)
    rows = tried("ACK", failing, said.append) + tried("SEND", lambda: [good], said.append)
    assert rows[1] == good
    assert said == ["ACK failed: LoadFailed: no | messages came"]
    written = block("grpc", ["--only", "grpc"], 1, Measured(0.0, rows))
    (line,) = [line for line in written.splitlines() if line.startswith("| ACK")]
    assert MISSED in line
    assert "LoadFailed: no / messages came" in line
