"""The producer: sends, retries, batches, transactions, traces."""
