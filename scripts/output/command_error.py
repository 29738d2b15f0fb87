"""How commands end: the expected errors, and the exit codes besides 0, 1 and 2."""

# As shells expect them.
SIGNALLED = 128  # plus the number of the signal
INTERRUPTED = SIGNALLED + 2  # by Ctrl-C


class CommandError(Exception):
    """The command can't do its work; the text is one sentence that a user can act on."""
