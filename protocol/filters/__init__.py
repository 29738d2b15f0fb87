"""Filter expressions: SQL92 texts to predicates over properties."""
