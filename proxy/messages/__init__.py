"""Protobuf messages of RocketMQ 5, and their mapping to records and properties."""
