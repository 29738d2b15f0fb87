"""gRPC over HTTP/2 on asyncio, plain and TLS on one port."""
