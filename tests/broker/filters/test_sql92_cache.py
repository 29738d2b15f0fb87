"""Compiled expressions are kept, within limits of number and length."""

from aerobee.broker.filters import sql92_cache
from aerobee.broker.filters.sql92_cache import ExpressionCache, compiled
from aerobee.protocol.filters.sql92 import TEXT_CHARS_MAX


def test_compiled_expressions_are_kept() -> None:
    assert compiled("a = 77") is compiled("a = 77")


def test_no_more_is_kept_than_may_be_by_length_and_what_is_asked_for_stays() -> None:
    def long(number: int) -> str:
        return f"a = '{number:08,d}'".ljust(TEXT_CHARS_MAX)

    first, second = compiled(long(1)), compiled(long(2))
    for number in range(3, sql92_cache.KEPT_CHARS_MAX // TEXT_CHARS_MAX + 3):
        compiled(long(number))
        assert compiled(long(1)) is first
    assert compiled(long(2)) is not second


def test_an_expression_that_is_longer_than_all_may_be_is_made_and_not_kept() -> None:
    kept = ExpressionCache(list, 2, 10)
    assert kept.get("x" * 11) == ["x"] * 11
    assert (len(kept), kept.chars) == (0, 0)
    for text in ("aaa", "bbb", "ccc"):
        kept.get(text)
    assert (len(kept), kept.chars) == (2, 6)
