"""Load generators of the benchmark. Not in the wheel."""
