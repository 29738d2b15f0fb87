"""A text is English for all that doesn't know of languages, and keeps what a page needs."""

import copy
import json
from unicodedata import normalize

import pytest
from aerobee.client.errors import BrokerError, NoAnswerError, UnreachableError
from aerobee.console.texts import Text, joined, text_of
from aerobee.console.web.languages import CHINESE
from aerobee.protocol import codes


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


def plain(text: object) -> str:
    """A Chinese text with the signs of ASCII."""
    return normalize("NFKC", str(text))


@pytest.mark.parametrize(
    ("wrong", "chinese"),
    [
        (
            UnreachableError(
                "can't connect to 10.0.0.1:10911: [Errno 111] Connection refused; failures in a "
                "row: 3, next try in 1.2 s"
            ),
            "无法连接到 10.0.0.1:10911:[Errno 111] 连接被拒绝;已连续失败 3 次,1.2 秒后重试",
        ),
        (
            UnreachableError("name server ns:9876: can't connect to ns:9876 within 3 s"),
            "NameServer ns:9876:3 秒内无法连接到 ns:9876",
        ),
        (
            NoAnswerError(
                "no answer from b:1 to SEND_MESSAGE within 5 s; it may have been done all the same"
            ),
            "b:1 在 5 秒内未响应 SEND_MESSAGE;操作可能已执行",
        ),
        (
            NoAnswerError("no answer from b:1 to PULL_MESSAGE within 5 s"),
            "b:1 在 5 秒内未响应 PULL_MESSAGE",
        ),
        (
            BrokerError(codes.SYSTEM_ERROR, "can't connect to\n10.0.0.1:1 within 3 s", "b:1", "X"),
            "b:1 返回 SYSTEM_ERROR(1),请求为 X:「can't connect to 10.0.0.1:1 within 3 s」",
        ),
        (OSError(28, "No space left on device"), "「[Errno 28] No space left on device」"),
    ],
)
def test_what_the_client_says_is_chinese_and_the_words_of_others_are_quoted(
    wrong: Exception, chinese: str
) -> None:
    found = text_of(wrong)
    assert found == str(wrong)
    assert plain(CHINESE.local(found)) == chinese
    told = Text("broker %(name)s: %(wrong)s", name="a", wrong=wrong)
    assert plain(CHINESE.local(told)) == f"Broker a:{chinese}"
