"""The RPCs of the messaging service."""
