"""What a visitor of the console may do: rights, sessions, logins, and the audit of actions."""
