"""The commit log: records, their keys and properties, the walk over them."""
