"""The options and columns of a write, and the sentence for each wrong one."""

import pytest

pytest.importorskip("pyarrow")

from aerobee.spark.sink_options import check_columns, row_fields, write_options


def test_a_write_needs_a_value_and_a_topic() -> None:
    options = write_options({"TOPIC": "orders", "nameServer": "h:1", "path": "ignored"})
    assert (options.topic, options.name_server, options.transactions) == ("orders", "h:1", False)
    check_columns([("value", "string")], options)
    check_columns([("value", "binary"), ("topic", "string")], write_options({}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "a"}, "did you mean topic"),
        ({"topic": "../a"}, "illegal characters"),
        ({"topic": "a", "group": "b/c"}, "illegal characters"),
        ({"topic": "a", "transactions": "yes"}, "'yes'; give true or false"),
        ({"topic": "a", "secretKey": "s"}, "access_key is empty"),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_options(given)


@pytest.mark.parametrize(
    ("fields", "given", "words"),
    [
        ([("value", "int")], {"topic": "a"}, "value is int; it must be binary or string"),
        ([("colour", "string")], {"topic": "a"}, "'colour' can't be written"),
        ([("key", "string")], {"topic": "a"}, "no column value"),
        ([("value", "string")], {}, "no topic is given"),
        (
            [("value", "string"), ("delay", "int")],
            {"topic": "a", "transactions": "true"},
            "can't be sent in transactions",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    fields: list[tuple[str, str]], given: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_columns(fields, write_options(given))


def test_a_row_becomes_a_message() -> None:
    options = write_options({"topic": "orders"})
    row = {
        "value": "text",
        "key": b"k",
        "tags": "t",
        "topic": "other",
        "properties": {"a": "b"},
        "delay": 1.5,
    }
    assert row_fields(row, options) == {
        "topic": "orders",
        "body": b"text",
        "keys": ["k"],
        "tags": "t",
        "properties": {"a": "b"},
        "delay": 1.5,
    }
    assert row_fields(row | {"key": "k  l"}, options)["keys"] == ["k", "l"]
    assert row_fields(row | {"key": None, "keys": ["k"]}, options)["keys"] == ["k"]
    assert row_fields({"value": b"\0", "topic": "other"}, write_options({}))["topic"] == "other"


@pytest.mark.parametrize(
    ("row", "words"),
    [({"value": b"", "topic": "a"}, "empty value"), ({"value": b"x", "topic": None}, "no topic")],
)
def test_a_row_that_is_no_message_is_refused(row: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        row_fields(row, write_options({}))
