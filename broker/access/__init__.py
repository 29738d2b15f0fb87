"""Access control (ACL 2.0): users, access lists, authentication and authorization."""
