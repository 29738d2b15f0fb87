"""The tools of every part of the broker: statistics, persistent tables, periodic tasks, fsync."""
