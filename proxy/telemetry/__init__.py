"""Clients of the proxy: their settings, their streams, commands to them."""
