"""aerobee: a message broker and name server that speak RocketMQ's protocol and write its files."""

__version__ = "0.2.0"
