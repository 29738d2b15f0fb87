"""What consumers are made of: offsets, held queues, pulling, sharing out, settling."""
