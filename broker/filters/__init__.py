"""Filters of consumer groups: tags, SQL92 expressions, bloom filters."""
