"""Latencies by request code and response code."""

import asyncio

import pytest
from aerobee.protocol import codes
from aerobee.protocol.aio import scheduler as schedulers
from aerobee.protocol.aio.rpc_latency import Rpc, RpcLatency, rpc_key
from aerobee.protocol.aio.scheduler import Scheduler

SEND_V2_OK = rpc_key(codes.SEND_MESSAGE_V2, codes.SUCCESS)
SEND = Rpc(codes.SEND_MESSAGE_V2, codes.SUCCESS, is_oneway=False, is_long_polling=False)


def shown(latency: RpcLatency) -> dict[Rpc, list[int]]:
    return {rpc: histogram.counts for rpc, histogram in latency.histograms()}


async def answered(latency: RpcLatency, times: int) -> None:
    """Respond to `times` sends in one loop iteration."""
    scheduler = Scheduler(latency=latency)
    latency.answered[SEND_V2_OK] += times
    scheduler.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.0025, 1), (0.05, 5)])
async def test_the_responses_of_a_loop_iteration_have_its_latency(
    monkeypatch: pytest.MonkeyPatch, seconds: float, bucket: int
) -> None:
    latency = RpcLatency()
    for module in ("scheduler", "rpc_latency"):
        monkeypatch.setattr(f"aerobee.protocol.aio.{module}.perf_counter", lambda: 100.0 + seconds)
    latency.began = 100.0
    await answered(latency, 3)
    (counts,) = shown(latency).values()
    assert counts[bucket] == 3 == sum(counts)
    assert latency.began == 0.0


async def test_immediate_and_late_responses_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    latency = RpcLatency()
    monkeypatch.setattr(schedulers, "perf_counter", lambda: 100.0)
    latency.began = 100.0
    await answered(latency, 2)
    latency.late(codes.SEND_MESSAGE_V2, codes.SUCCESS, 50_000)
    assert [counts[0] for counts in shown(latency).values()] == [2]
    assert [counts[-1] for counts in shown(latency).values()] == [1]
    await answered(latency, 2)  # reading the histograms has not cleared them
    assert [sum(counts) for counts in shown(latency).values()] == [5]


async def test_the_number_of_code_combinations_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedulers, "SERIES_MAX", 5)
    monkeypatch.setattr("aerobee.protocol.aio.rpc_latency.SERIES_MAX", 5)
    monkeypatch.setattr(schedulers, "perf_counter", lambda: 100.0)
    latency = RpcLatency()
    for code in range(20):
        latency.began = 100.0
        latency.answered[code << 32] += 1
        await answered(latency, 0)
        assert len(latency.at_once) <= 6
    assert len(shown(latency)) == 5
