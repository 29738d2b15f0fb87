"""Transactions: half messages, their checks, commit and rollback."""
