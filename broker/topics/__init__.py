"""Topics and static topics: their tables and the rules for making them."""
