"""Pulls, long polling, queries of messages, cold data."""
