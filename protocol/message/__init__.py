"""A message as bytes: record, properties, ids, batches, compression, handles."""
