"""Files of fixed size, JSON files, checkpoint and lock: the only code that touches the disk."""
