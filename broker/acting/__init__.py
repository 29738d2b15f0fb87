"""The acting master: a slave that stands in for a lost master, and the master's return."""
