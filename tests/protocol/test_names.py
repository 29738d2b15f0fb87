"""Which names are legal, and whose they are."""

import pytest
from aerobee.protocol import codes, names
from aerobee.protocol.errors import Refusal

LEGAL = ["T", "%RETRY%group", "a|b", "A_b-9", "0"]
ILLEGAL = [
    "",
    " ",
    "a b",
    "a/b",
    "..",
    ".",
    "a.b",
    "ä",
    "a\n",
    "\n",
    "a\x00",
    "../x",
    "a@b",
    "a\\b",
]


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_name_passes(name: str) -> None:
    names.check_topic(name)
    names.check_group(name)


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    for check in (names.check_topic, names.check_group):
        with pytest.raises(Refusal) as refused:
            check(name)
        assert refused.value.code == codes.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("prefix", "limit"), [("", 127), (names.RETRY_PREFIX, 255), (names.DLQ_PREFIX, 255)]
)
def test_a_topic_has_a_longest_length(prefix: str, limit: int) -> None:
    names.check_topic(prefix.ljust(limit, "t"))
    with pytest.raises(Refusal) as refused:
        names.check_topic(prefix.ljust(limit + 1, "t"))
    assert str(limit) in refused.value.remark
    assert str(limit + 1) in refused.value.remark


def test_a_group_has_a_longest_length() -> None:
    names.check_group("g" * 120)
    with pytest.raises(Refusal) as refused:
        names.check_group("g" * 121)
    assert "121 characters, the limit is 120" in refused.value.remark


def test_what_belongs_to_the_system_is_known() -> None:
    assert names.is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert names.is_system_topic("rmq_sys_anything")
    assert not names.is_system_topic("orders")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("orders")
    assert names.SEND_FORBIDDEN_TOPICS <= names.SYSTEM_TOPICS


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%billing", "%RETRY%ns%billing"),
        ("%DLQ%billing", "%DLQ%ns%billing"),
    ],
)
def test_a_namespace_stands_before_the_name_and_behind_the_prefix(name: str, inside: str) -> None:
    assert names.with_namespace(name, "ns") == inside
    assert names.with_namespace(inside, "ns") == inside
    assert names.without_namespace(inside, "ns") == name
    assert names.with_namespace(name, "") == names.without_namespace(name, "") == name


def test_names_of_the_system_are_in_no_namespace() -> None:
    for name in ("TBW102", "rmq_sys_x", "CID_RMQ_SYS_TRANS", ""):
        assert names.with_namespace(name, "ns") == name
