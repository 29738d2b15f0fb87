"""The settings of a broker, and those that change while it runs."""
