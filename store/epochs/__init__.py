"""Epochs: which master wrote which part of the log, and where two logs begin to differ."""

from .entries import END_MAX, EpochEntry, consistent_point
from .epochs import Epochs

__all__ = ["END_MAX", "EpochEntry", "Epochs", "consistent_point"]
