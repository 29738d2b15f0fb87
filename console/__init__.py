"""The HTTP endpoint of a daemon: health, metrics and status."""
