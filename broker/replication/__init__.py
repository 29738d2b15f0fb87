"""Replication: the master's end, the slave's end, and what a slave copies besides the log."""
