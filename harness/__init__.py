"""Processes of RocketMQ, aerobee, Kafka and etcd for tests and benchmark. Not in the wheel."""
