"""Generated documents and the demo. Not in the wheel."""
