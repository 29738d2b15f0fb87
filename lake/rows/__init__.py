"""Messages as rows: columns, ranges of queues, and the pulls that read them."""
