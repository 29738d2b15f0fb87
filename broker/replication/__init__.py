"""Replication: the master's end, the slave's end, and the tables that a slave copies."""
