"""Offline tools: check, dump and rebuild."""
