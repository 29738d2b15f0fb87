"""Bytes to commands and back: frames, header codecs, JSON dialects."""
