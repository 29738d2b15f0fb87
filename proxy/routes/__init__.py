"""Brokers, topics and groups as the proxy knows them."""
