"""Pop: messages taken for a time, acknowledged, revived."""
