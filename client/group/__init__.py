"""Shared by group consumers: rebalance, offsets, subscriptions, process queues."""
