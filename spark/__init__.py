"""RocketMQ topics as a PySpark data source."""
