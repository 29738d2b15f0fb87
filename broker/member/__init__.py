"""A broker in controller mode: identity, role, authority, and the switch from role to role."""
