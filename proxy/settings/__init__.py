"""The settings of a proxy."""
