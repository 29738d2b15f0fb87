"""Names: which are legal, and what is said of the others."""

from collections.abc import Callable
from typing import Any

import pytest
from aerobee.proxy.messages.names import group_of, topic_of
from aerobee.proxy.messages.status import Code, StatusError

from ..support import resource


@pytest.mark.parametrize("name", ["a", "%DLQ%g", "a|b-c_D9", "t" * 127])
def test_legal_topics_are_taken(name: str) -> None:
    assert topic_of(resource(name)) == name


@pytest.mark.parametrize(
    ("read", "name", "code", "said"),
    [
        (topic_of, "", Code.ILLEGAL_TOPIC, "is blank"),
        (topic_of, "t" * 128, Code.ILLEGAL_TOPIC, "it has 128 characters"),
        (topic_of, "a b", Code.ILLEGAL_TOPIC, "contains illegal characters"),
        (topic_of, "rmq_sys_x", Code.ILLEGAL_TOPIC, "cannot access system topic"),
        (group_of, " ", Code.ILLEGAL_CONSUMER_GROUP, "is blank"),
        (group_of, "g" * 256, Code.ILLEGAL_CONSUMER_GROUP, "max length 255"),
        (group_of, "g\n", Code.ILLEGAL_CONSUMER_GROUP, "contains illegal characters"),
        (group_of, "CID_RMQ_SYS_x", Code.ILLEGAL_CONSUMER_GROUP, "system consumer group"),
    ],
)
def test_an_illegal_name_is_refused_with_its_code(
    read: Callable[[Any], str], name: str, code: Code, said: str
) -> None:
    with pytest.raises(StatusError) as caught:
        read(resource(name))
    assert caught.value.code == code
    assert said in caught.value.message
