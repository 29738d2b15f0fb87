"""Exit codes of the command `aerobee` besides 0, 1 and 2, as shells expect them."""

SIGNALLED = 128  # plus the number of the signal
INTERRUPTED = SIGNALLED + 2  # by Ctrl-C
