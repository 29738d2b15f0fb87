"""Metrics and the status page of a broker."""
