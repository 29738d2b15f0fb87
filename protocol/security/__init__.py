"""Signatures of requests, and self-signed certificates."""
