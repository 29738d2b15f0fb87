"""The settings of a broker, and changes of them while it runs."""
