"""Compiled code that parses sends and encodes their responses (numba)."""
