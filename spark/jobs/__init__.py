"""Real work done with the source, as examples and as tests of it."""
