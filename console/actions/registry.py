"""The registry of a console: its actions, what is kept of them, and the redrives that run."""

from pathlib import Path

from . import brokers, definitions, groups, messages, offsets, topics, users
from .action import Action
from .drafts import Drafts
from .previews import Previews
from .redrives import Redrives

FAMILIES = (topics, groups, offsets, messages, brokers, users, definitions)


class ActionRegistry:
    """`folder` is where redrives keep their results; `actions` are by their names in the URL."""

    def __init__(self, folder: Path) -> None:
        self.redrives = Redrives(folder)
        self.previews = Previews()
        self.drafts = Drafts()
        found = [one for family in FAMILIES for one in family.ACTIONS]
        self.actions: dict[str, Action] = {
            one.name: one for one in [*found, self.redrives.action()]
        }
