"""Configuration files with every option, and the tables of known keys."""
