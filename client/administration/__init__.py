"""Administration by noun: brokers, topics, groups, messages; `client/admin.py` is their face."""
