"""Bytes to values and back: RocketMQ's wire format without sockets, files or clocks."""
