"""The simple consumer (pop)."""
