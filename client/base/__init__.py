"""Shared by all clients: messages, receipts, security, identity, latency."""
