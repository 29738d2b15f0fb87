"""The expected errors of commands."""


class CommandError(Exception):
    """The command can't do its work; the text is one sentence that a user can act on."""
