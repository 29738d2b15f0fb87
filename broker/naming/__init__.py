"""The broker and its name servers: registration, routes, other masters of the same name."""
