"""The key index: hash tables from keys to log offsets."""
