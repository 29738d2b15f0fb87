"""MessageStore: appends, reads, recovers and cleans."""
