"""JSON bodies as columns of a table."""
