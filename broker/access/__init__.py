"""Access control (ACL 2.0): users, access lists, permissions; and all gates before handlers."""
