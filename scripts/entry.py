"""The program `aerobee`: what ends it while it is being imported ends it without a traceback."""

from .output.command_error import INTERRUPTED


def main() -> int:
    """Run one command, as `cli.main`."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
