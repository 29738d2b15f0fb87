"""The client's connections: name servers, routes, heartbeats."""
