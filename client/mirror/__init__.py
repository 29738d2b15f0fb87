"""Copy of topics, messages and offsets from one cluster to another, while both are in use."""
