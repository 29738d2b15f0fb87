"""What visitors may do, and with which topics and groups."""

import pytest
from aerobee.console.access.rights import Patterns, Right, Visitor

VIEWER = Visitor("v", Right.VIEW)
LIMITED = Visitor(
    "l", Right.OPERATE, Patterns.of(["orders", "pay*"]), Patterns.of(["shop", "till*"])
)


def test_a_right_has_the_ones_before_it() -> None:
    admin = Visitor("a", Right.ADMINISTER)
    assert [admin.may(right) for right in Right] == [True, True, True]
    assert [VIEWER.may(right) for right in Right] == [True, False, False]
    assert [VIEWER.may(right, topic="any", group="any") for right in Right] == [True, False, False]


@pytest.mark.parametrize(
    ("topic", "group", "may"),
    [
        ("orders", None, True),
        ("orders2", None, False),
        ("pay", None, True),
        ("payments", None, True),
        ("xpay", None, False),
        (None, "shop", True),
        (None, "shops", False),
        ("orders", "shop", True),
        ("orders", "other", False),
        ("other", "shop", False),
        ("%RETRY%shop", None, True),
        ("%DLQ%till-1", None, True),
        ("%DLQ%other", None, False),
        ("%DLQ%shop", "other", False),
        ("%RETRY%orders", None, False),
        ("", None, False),
    ],
)
def test_patterns_limit_topics_and_groups(topic: str | None, group: str | None, may: bool) -> None:
    for right in (Right.VIEW, Right.OPERATE):
        assert LIMITED.may(right, topic=topic, group=group) is may
    assert not LIMITED.may(Right.ADMINISTER, topic=topic, group=group)


def test_a_limited_visitor_may_only_view_what_is_about_a_whole_cluster() -> None:
    assert LIMITED.is_limited
    assert LIMITED.may(Right.VIEW)
    assert not LIMITED.may(Right.OPERATE)


def test_a_visitor_of_one_cluster_may_nothing_in_another() -> None:
    visitor = Visitor("a", Right.ADMINISTER, cluster="east")
    assert visitor.may(Right.VIEW, cluster="east")
    assert not visitor.may(Right.VIEW, cluster="west")


def test_a_visitor_without_patterns_sees_nothing() -> None:
    visitor = Visitor("n", Right.VIEW, Patterns.of([]), Patterns.of([]))
    assert not visitor.may(Right.VIEW, topic="orders")
    assert not visitor.may(Right.VIEW, group="shop")


@pytest.mark.parametrize("text", ["", "a*b", "**", "a\n", "x" * 256])
def test_a_pattern_that_can_not_be_used_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Patterns.of([text])


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(ValueError, match="101 patterns are given, the limit is 100"):
        Patterns.of(["a"] * 101)
