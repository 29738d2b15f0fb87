"""The headers of requests to the name server have the field names of RocketMQ's classes."""

from aerobee.protocol.headers.namesrv import BrokerHeartbeat, RegisterBroker


def test_the_timeout_of_a_heartbeat_has_the_name_in_broker_heartbeat_request_header() -> None:
    fields = {
        "clusterName": "c",
        "brokerAddr": "127.0.0.1:10911",
        "brokerName": "a",
        "brokerId": "0",
        "heartbeatTimeoutMills": "5000",
    }
    assert BrokerHeartbeat("c", "127.0.0.1:10911", "a", 0, 5_000).to_fields() == fields


def test_the_timeout_of_a_registration_has_the_name_in_register_broker_request_header() -> None:
    header = RegisterBroker("a", "127.0.0.1:10911", "c", 0, timeout_ms=5_000)
    assert header.to_fields()["heartbeatTimeoutMillis"] == "5000"
