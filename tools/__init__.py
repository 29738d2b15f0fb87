"""What makes documents and releases, and the demo. Not in the wheel."""
