"""Consumer groups, their members, offsets and queue locks."""
