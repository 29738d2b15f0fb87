"""The error of a lake."""


class LakeError(Exception):
    """Why a table does not go on, and what to do about it."""
