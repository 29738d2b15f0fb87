"""The table of access lists: what is put together, taken away, found, kept and limited."""

import stat
from pathlib import Path

import pytest
from aerobee.broker.access import access_lists
from aerobee.broker.access.access_lists import AccessLists, user_of
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo
from aerobee.protocol.errors import Refusal
from aerobee.protocol.security.policies import Need, resource_of
from aerobee.store.base.errors import DamagedStore

IP = "127.0.0.1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "acls.json"


@pytest.fixture
def lists(path: Path) -> AccessLists:
    lists = AccessLists(path)
    lists.load()
    return lists


def policy(
    *resources: str, actions: str = "Pub", decision: str = "Allow", kind: str | None = None
) -> list[PolicyInfo]:
    entries = [PolicyEntryInfo(one, actions.split(","), None, decision) for one in resources]
    return [PolicyInfo(kind, entries)]


def resources(info: AclInfo | None) -> list[tuple[str | None, list[str | None]]]:
    assert info is not None
    return [
        (each.policy_type, [entry.resource for entry in each.entries or []])
        for each in info.policies or []
    ]


def denial(lists: AccessLists, topic: str, *actions: str) -> str | None:
    return lists.denial("a", Need("Topic", topic, actions or ("Pub",)), IP)


def test_entries_come_together_and_one_about_the_same_resource_takes_its_place(
    lists: AccessLists, path: Path
) -> None:
    lists.put("a", policy("Topic:t", "Group:g"))
    lists.put("a", policy("Topic:u"))
    lists.put("a", policy("Topic:t", actions="Sub,Get", decision="Deny"))
    lists.put("a", policy("*", kind="default"))
    wanted = [("Custom", ["Topic:t", "Group:g", "Topic:u"]), ("Default", ["*"])]
    assert resources(lists.get("a")) == wanted
    again = AccessLists(path)
    again.load()
    assert again.get("a") == lists.get("a")
    info = again.get("a")
    assert info is not None
    assert info.policies is not None
    assert info.policies[0].entries is not None
    assert info.policies[0].entries[0] == PolicyEntryInfo("Topic:t", ["Sub", "Get"], None, "Deny")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_change_holds_at_once(lists: AccessLists) -> None:
    assert denial(lists, "t") == "no matched policies."
    lists.put("a", policy("Topic:t"))
    assert denial(lists, "t") is None
    lists.put("a", policy("Topic:t", decision="Deny"))
    assert denial(lists, "t") == "the decision is deny."
    lists.delete("a")
    assert denial(lists, "t") == "no matched policies."


def test_the_default_policy_is_asked_when_the_custom_one_says_nothing(lists: AccessLists) -> None:
    lists.put("a", policy("*", decision="Deny", actions="All", kind="Default"))
    lists.put("a", policy("Topic:t"))
    assert denial(lists, "t") is None
    assert denial(lists, "t", "Sub") == "the decision is deny."
    lists.put("a", policy("*", actions="All", kind="Default"))
    assert denial(lists, "u", "Sub") is None


def test_what_is_taken_away_is_an_entry_a_policy_or_the_list(lists: AccessLists) -> None:
    lists.put("a", policy("Topic:t", "Topic:t*"))
    lists.put("a", policy("Topic:t", kind="Default"))
    lists.delete("a", None, resource_of("Topic:t"))
    assert resources(lists.get("a")) == [("Custom", ["Topic:t*"]), ("Default", ["Topic:t"])]
    lists.delete("a", None, resource_of("Topic:never-there"))
    lists.delete("a", "Custom", resource_of("topic:t*"))
    assert resources(lists.get("a")) == [("Default", ["Topic:t"])]
    lists.delete("a", "Default", resource_of("Topic:t"))
    assert lists.get("a") is None
    with pytest.raises(Refusal, match=r"The acl is not exist\."):
        lists.delete("a")
    lists.forget("a")


def test_lists_are_found_by_parts_of_subject_and_resource(lists: AccessLists) -> None:
    lists.put("bob", policy("Topic:t", "Group:bob"))
    lists.put("ann", policy("Topic:u"))
    assert [info.subject for info in lists.all()] == ["User:ann", "User:bob"]
    assert [info.subject for info in lists.all("bo", " ")] == ["User:bob"]
    assert [resources(info) for info in lists.all(None, "Topic:t")] == [[("Custom", ["Topic:t"])]]
    # As in RocketMQ: what is in the subject itself does not choose among the entries.
    assert resources(lists.all("bob", "bob")[0]) == [("Custom", ["Topic:t", "Group:bob"])]
    assert lists.all("User:c") == []


@pytest.mark.parametrize("given", [None, [], [PolicyInfo("Custom", [])], [PolicyInfo()]])
def test_a_list_without_entries_is_refused(
    lists: AccessLists, given: list[PolicyInfo] | None
) -> None:
    with pytest.raises(Refusal, match="The policies is empty"):
        lists.put("a", given)
    assert lists.get("a") is None


def test_of_a_list_with_a_fault_nothing_is_taken(lists: AccessLists) -> None:
    with pytest.raises(Refusal, match="the resource 'Topic:' is none"):
        lists.put("a", policy("Topic:t", "Topic:"))
    with pytest.raises(Refusal, match="the policy type 'Other' is none; give Custom or Default"):
        lists.put("a", policy("Topic:t", kind="Other"))
    assert lists.get("a") is None


def test_more_than_the_limits_is_refused(
    lists: AccessLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_lists, "ENTRIES_MAX", 2)
    monkeypatch.setattr(access_lists, "LISTS_MAX", 1)
    lists.put("a", policy("Topic:t", "Topic:u"))
    with pytest.raises(Refusal, match="of User:a would have 3 entries, the limit is 2"):
        lists.put("a", policy("Topic:v"))
    with pytest.raises(Refusal, match="there are 1 access lists, the limit is 1"):
        lists.put("b", policy("Topic:v"))
    assert resources(lists.get("a")) == [("Custom", ["Topic:t", "Topic:u"])]


def test_what_is_remembered_of_decisions_is_limited(
    lists: AccessLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_lists, "DECISIONS_MAX", 3)
    lists.put("a", policy("Topic:t*"))
    for number in range(10):
        assert denial(lists, f"t{number}") is None
        assert len(lists._decisions) <= 3


def test_a_subject_is_a_user(lists: AccessLists) -> None:
    assert user_of("User:a:b") == "a:b"
    for wrong in (None, "", "a", "User", "User:", "Role:a"):
        with pytest.raises(Refusal, match=r"is none; give User:NAME"):
            user_of(wrong)


@pytest.mark.parametrize(
    "text", ["{", '{"acls":{"a":{}}}', '{"acls":{"User:a":{"policies":[{"entries":[{}]}]}}}']
)
def test_a_file_that_was_spoilt_by_hand_stops_the_start(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(DamagedStore, match=r"acls\.json"):
        AccessLists(path).load()
