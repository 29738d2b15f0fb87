"""What every part of the broker uses: statistics, persistent tables, periodic tasks, fsync."""
