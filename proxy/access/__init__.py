"""Signatures and permissions of gRPC calls."""
