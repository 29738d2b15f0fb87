"""The controller: elects the master of each broker name and keeps the sync state sets."""
