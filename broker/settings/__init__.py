"""The settings of a broker: the static ones, and the ones that change while it runs."""
