"""Real RocketMQ and Kafka processes for tests and the benchmark. Not in the wheel."""
