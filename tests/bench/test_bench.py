"""The benchmark's table and its verdict; the measures themselves need a machine to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from aerobee.bench import bench, store_measures
from aerobee.bench.bench_report import HEAD, MISSED, Measured, block, idle_share, merged
from aerobee.bench.loads import loadgen
from aerobee.bench.measures import CASES, Compared, Growth
from aerobee.bench.store_measures import Held
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.store import MessageStore


def row(ratio: float, *, holds: bool) -> Compared:
    return Compared("SEND", "messages/s", 1_000.0, 1_000.0 * ratio, ">= 2.5", holds)


@pytest.mark.parametrize(
    ("compared", "calls", "grown", "missed"),
    [
        ([row(3.0, holds=True)], {"SEND": 11.9}, [Growth("SEND", 100.0, 91.0)], 0),
        ([row(2.0, holds=False)], {"SEND": 11.9}, [Growth("SEND", 100.0, 91.0)], 1),
        ([row(3.0, holds=True)], {"SEND": 12.1}, [Growth("SEND", 100.0, 91.0)], 1),
        ([row(3.0, holds=True)], {"SEND": 11.9}, [Growth("SEND", 100.0, 90.0)], 1),
    ],
)
def test_the_report_says_of_each_mark_whether_it_was_reached(
    compared: list[Compared], calls: dict[str, float], grown: list[Growth], missed: int
) -> None:
    words = ["--quick", "--scratch", "/somewhere"]
    held = [Held("Query", "1.10 ms", "<= 2 ms", holds=not missed)]
    found = Measured(4.25, compared, calls, grown, held if missed else [], idle=0.874)
    report = block("rates", words, 3, found)
    assert report.count(MISSED) == (2 if missed else 0)
    assert "`scripts/bench --quick`" in report
    assert "/somewhere" not in report
    assert "was 4.2 when it began" in report
    assert "idle for 87% then" in report
    assert f"| {compared[0].ratio:.2f} |" in report


def test_how_idle_the_cores_are_is_a_share() -> None:
    share = idle_share(0.05)
    assert share is None or 0 <= share <= 1


def test_a_missing_load_generator_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "loadgen.c"
    assert bench.main(["--loadgen", str(missing), "--scratch", str(tmp_path)]) == 2
    assert f"bench: {missing} does not exist: name the load" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_only_the_refusals_of_a_busy_broker_are_borne_and_few_of_them() -> None:
    load = CASES[0].load
    assert loadgen.refused_max(load, loadgen.SYSTEM_BUSY) == load.count / 100
    assert loadgen.refused_max(load, "14") == 0


def test_what_was_not_measured_again_stays_in_the_report() -> None:
    def part(name: str, ratio: float) -> str:
        return block(name, [], 3, Measured(0.0, [row(ratio, holds=True)]))

    sync, recovery = part("sync", 2.6), part("recovery", 0.3)
    whole = merged(merged("", {"recovery": recovery}), {"sync": sync})
    assert whole == f"{HEAD}{sync}{recovery}".rstrip("\n") + "\n"
    newer = part("recovery", 0.2)
    assert merged(whole, {"recovery": newer}) == whole.replace(recovery.strip(), newer.strip())
    assert merged(whole, {}) == whole
    told = whole.replace("Read the ratios", "It was a slow day. Read the ratios")
    assert told != whole
    assert merged(told, {"recovery": recovery}) == told
    others = whole + "\n<!-- timers: begin -->\nof others\n<!-- timers: end -->\n"
    assert merged(others, {"recovery": recovery}) == others


def test_the_wait_for_the_index_is_measured_while_a_store_is_filled(tmp_path: Path) -> None:
    wait = store_measures.fill_keyed(tmp_path / "store", 5_000)
    assert wait.rate > 0
    assert 0 <= wait.share < 1
    store = MessageStore(tmp_path / "store", StoreSettings(), bytes(8), lambda: 1)
    store.open()
    assert len(store.query(store_measures.KEYED, "order-4999", 0, 1 << 62)) == 1
    assert len(store.query(store_measures.KEYED, f"{4_999:032X}", 0, 1 << 62)) == 1
    store.close()
