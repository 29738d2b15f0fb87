"""The desk of a console: its actions, the previews that wait, and the redrives that run."""

from pathlib import Path

from .previews import Previews
from .redrives import Redrives
from .table import actions


class Desk:
    """`folder` is where redrives keep their results."""

    def __init__(self, folder: Path) -> None:
        self.redrives = Redrives(folder)
        self.previews = Previews()
        self.actions = actions(self.redrives)
