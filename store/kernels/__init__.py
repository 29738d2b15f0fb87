"""Compiled code for the hot loops of the store (numba)."""
