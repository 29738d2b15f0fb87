"""The asyncio shell around the protocol: connections, servers, peers."""
