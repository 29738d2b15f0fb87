"""The RPCs of the messaging service, a file for each."""
