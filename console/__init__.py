"""The web console of a cluster, and the HTTP endpoint of each daemon: health, metrics, status."""
