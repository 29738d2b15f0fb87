"""The request handlers of the broker, one file a family."""
