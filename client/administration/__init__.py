"""Administration by noun, from brokers to dead letters; `client/admin.py` is their face."""
