"""What the tests for loss share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """A hundred thousand recoveries say what they found: too much to keep."""
    log = logging.getLogger("aerobee.store")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
