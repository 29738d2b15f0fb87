"""Sends: single messages, batches, retries and replies."""
