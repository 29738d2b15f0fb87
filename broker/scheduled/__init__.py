"""Delayed messages: delay levels and the timer wheel."""
