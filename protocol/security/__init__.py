"""Signatures of requests, what access lists allow, and self-signed certificates."""
