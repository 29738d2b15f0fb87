"""All actions of a console, by name."""

from . import brokers, definitions, groups, messages, offsets, topics, users
from .action import Action
from .redrives import Redrives

FAMILIES = (topics, groups, offsets, messages, brokers, users, definitions)


def actions(redrives: Redrives) -> dict[str, Action]:
    """Every action, by its name in the URL."""
    found = [one for family in FAMILIES for one in family.ACTIONS]
    return {one.name: one for one in [*found, redrives.action()]}
