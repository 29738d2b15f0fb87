"""The status page and the metrics of a proxy."""

from aerobee.proxy.calls.counts import BOUNDS_MS
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
    title, facts, tables = result_of(overview(proxied.proxy))
    assert title == "aerobee proxy"
    assert dict(facts)["Clients"] == 1
    assert dict(facts)["Calls under way"] == 1  # the telemetry
    calls, brokers, clients = (rows for _, _, rows in tables)
    assert {tuple(row[:3]) for row in calls} == {
        ("SendMessage", "OK", 1),
        ("SendMessage", "TOPIC_NOT_FOUND", 1),
    }
    assert brokers == [("broker-a", proxied.cluster.brokers[0].address)]
    assert [row[:4] for row in clients] == [("watcher", "PYTHON", "5.1.0", "watchers")]


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
