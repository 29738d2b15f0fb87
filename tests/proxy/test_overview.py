"""The status and the metrics of a proxy."""

import pytest
from aerobee.proxy import overview as module
from aerobee.proxy.calls.service import BOUNDS_MS
from aerobee.proxy.overview import families, overview

from ..steps import result_of
from .support import Setup
from .telemetry.talking import consumer, talk


async def test_clients_and_calls_are_shown(proxied: Setup) -> None:
    await proxied.create("Shown")
    client = proxied.client("watcher")
    await talk(client, consumer("watchers", "Shown"))
    await client.send("Shown", "one")
    await client.send("Missing", "one")
    found = result_of(overview(proxied.proxy))
    assert found["daemon"] == "proxy"
    assert found["clients_connected"] == 1
    assert found["calls_under_way"] == 1  # the telemetry
    assert {(row["rpc"], row["code"], row["calls"]) for row in found["calls"]} == {
        ("SendMessage", "OK", 1),
        ("SendMessage", "TOPIC_NOT_FOUND", 1),
    }
    assert found["brokers"] == {"broker-a": proxied.cluster.brokers[0].address}
    (row,) = found["clients"]
    keys = ("client", "language", "version", "group", "is_connected")
    expected = ["watcher", "PYTHON", "5.1.0", "watchers", True]
    assert [row[key] for key in keys] == expected


async def test_more_clients_than_the_status_shows_are_counted(
    proxied: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLIENTS_SHOWN_MAX", 2)
    await proxied.create("Crowded")
    for number in range(3):
        await talk(proxied.client(f"watcher-{number}"), consumer("watchers", "Crowded"))
    found = result_of(overview(proxied.proxy))
    assert len(found["clients"]) == 2
    assert found["clients_connected"] == 3


async def test_metrics_count_calls_codes_and_clients(proxied: Setup) -> None:
    await proxied.create("Counted")
    client = proxied.client()
    await talk(client, consumer("counters", "Counted"))
    for _ in range(3):
        await client.send("Counted", "one")
    found = {name: (labels, list(values)) for name, _, _, labels, values in families(proxied.proxy)}
    labels, values = found["rocketmq_rpc_latency_milliseconds"]
    ((at, (bounds, counts, total)),) = values  # type: ignore[misc]
    assert dict(zip(labels, at, strict=True))["request_code"] == "SendMessage"
    assert dict(zip(labels, at, strict=True))["response_code"] == "OK"
    assert (bounds, sum(counts)) == (BOUNDS_MS, 3)
    assert total > 0
    assert found["rocketmq_proxy_up"][1][0][1] == 1
    (sends,) = (
        count
        for at, count in found["aerobee_proxy_calls_total"][1]
        if at[3].endswith("/SendMessage")
    )
    assert sends == 3
    assert found["aerobee_proxy_clients"][1][0][1] == 1
    assert found["aerobee_proxy_telemetry_streams"][1][0][1] == 1
