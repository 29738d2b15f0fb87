"""The error of a lake."""


class LakeError(Exception):
    """Why a table does not go on, and what to do about it."""


class NoTable(LakeError):
    """The settings have no table of that name, or for that topic, or the catalog has none."""
