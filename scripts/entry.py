"""The program `aerobee`: what ends it while it is being imported ends it without a traceback."""

INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


def main() -> int:
    """Run one command, as `cli.main`."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
