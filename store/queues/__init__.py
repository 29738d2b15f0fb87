"""Consume queues, batch queues, and searches by time."""
