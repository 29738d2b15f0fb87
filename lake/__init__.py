"""Topics as tables: every message of a topic as a row of an Iceberg table, once."""
