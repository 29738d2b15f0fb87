"""java.util.Properties: what Java reads out of such a text is read out of it here."""

import pytest
from aerobee.protocol.codec.java_properties import dump, parse


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        ("a = 1\n  b:2\r\nc 3\rd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# a=1\n ! b=2\n\n \nc=3", {"c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\n b = \n", {"a": "", "b": ""}),
        ("a=x=y:z \n", {"a": "x=y:z "}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\u4e2d\\q\\\\", {"a": "\t\n中q\\"}),
        ("a=1\n#x\\\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("", {}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse(text) == found


def test_a_unicode_escape_without_four_digits_is_an_error() -> None:
    with pytest.raises(ValueError, match="not followed by four hex digits"):
        parse("a=\\u12x")


def test_lines_are_written_in_the_order_of_the_keys() -> None:
    assert dump({"b": "2", "a": "1"}) == "a=1\nb=2\n"
