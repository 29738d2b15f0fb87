"""A broker in controller mode: identity, election, authority, and the switch from role to role."""
