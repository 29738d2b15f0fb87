"""The lite pull consumer, the pull consumer and the reader."""
