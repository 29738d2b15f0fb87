"""A text is English for all that doesn't know of languages, and keeps what a page needs."""

import copy
import json

from aerobee.console.texts import Text, joined, text_of


def test_a_text_is_its_english_and_keeps_its_pattern() -> None:
    found = Text("topic %(topic)s, 100 %%", topic="a%s")
    assert found == "topic a%s, 100 %"
    assert json.dumps([found]) == '["topic a%s, 100 %"]'
    assert (found.pattern, found.values) == ("topic %(topic)s, 100 %%", {"topic": "a%s"})
    assert copy.deepcopy(found).values == found.values


def test_texts_are_joined_with_what_each_keeps() -> None:
    one = Text("%(count)s queues", count=3)
    found = joined(", ", [one, "x%"])
    assert found == "3 queues, x%"
    assert one in found.values.values()


def test_an_error_says_its_text() -> None:
    text = Text("no topic %(name)s", name="a")
    assert text_of(ValueError(text)) is text
    assert text_of(OSError(2, "gone")) == str(OSError(2, "gone"))
    assert text_of(ValueError()) == ""
