"""What consumers of a group share: rebalance, offsets, subscriptions, process queues."""
