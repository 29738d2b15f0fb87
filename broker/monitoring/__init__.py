"""Metrics and the status of a broker."""
