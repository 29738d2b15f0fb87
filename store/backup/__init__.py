"""Backups of a store folder: taken while a broker runs, and restored to a moment."""
