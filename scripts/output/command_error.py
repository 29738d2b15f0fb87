"""The error that a command ends with when it can't do what was asked."""


class Failed(Exception):
    """Why, in one sentence that a user can act on."""
