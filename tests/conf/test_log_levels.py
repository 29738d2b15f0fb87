"""Levels of loggers as a text, and their return to what they were."""

from __future__ import annotations

import logging

import pytest
from aerobee.conf import log_levels
from aerobee.conf.sources import ConfigError


def level(name: str) -> int:
    return logging.getLogger(name).level


def test_loggers_get_their_levels_and_later_their_old_ones_back() -> None:
    root, store = level(""), level("aerobee.store")
    try:
        log_levels.use("error, aerobee.store=DEBUG,aerobee.broker.pull=warning")
        assert level("") == logging.ERROR
        assert level("aerobee.store") == logging.DEBUG
        assert level("aerobee.broker.pull") == logging.WARNING
        log_levels.use("aerobee.broker.pull=error")
        assert (level(""), level("aerobee.store")) == (root, store)
        assert level("aerobee.broker.pull") == logging.ERROR
    finally:
        log_levels.use("")
    assert level("aerobee.broker.pull") == logging.NOTSET


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("loud", "'loud', which is no level; write one of debug, info, warning, error"),
        ("aerobee.store", "which is no level"),
        ("aerobee.stroe=debug", "the logger 'aerobee.stroe', but must name a module of aerobee"),
        ("aerobee.store.base.errors.more=debug", "must name a module"),
        ("../conf=debug", "must name a module"),
        ("nosuchpackage=debug", "or an installed package"),
        ("debug," * 500, "has 3000 characters, the limit is 1024"),
    ],
)
def test_what_is_no_level_or_no_logger_is_told_and_changes_nothing(text: str, says: str) -> None:
    before = level("")
    with pytest.raises(ConfigError) as wrong:
        log_levels.use(text)
    assert says in str(wrong.value)
    assert level("") == before


def test_a_module_a_room_and_another_package_are_loggers() -> None:
    text = "aerobee=info,aerobee.store.base=error,aerobee.store.base.errors=debug,asyncio=error"
    assert list(log_levels.parse(text)) == [
        "aerobee",
        "aerobee.store.base",
        "aerobee.store.base.errors",
        "asyncio",
    ]
