"""What entries of an access list cover, and which of several decides."""

import pytest
from aerobee.protocol.bodies.access import PolicyEntryInfo
from aerobee.protocol.errors import Refusal
from aerobee.protocol.security.policies import (
    ACTIONS_MAX,
    NAME_CHARS_MAX,
    SOURCES_MAX,
    Need,
    PolicyEntry,
    address_of,
    deciding,
    entry_of,
    resource_of,
)


def entry(
    resource: str, actions: str = "Pub,Sub", decision: str = "Allow", *ips: str
) -> PolicyEntry:
    return entry_of(PolicyEntryInfo(resource, actions.split(","), list(ips) or None, decision))


def decided(
    entries: list[PolicyEntry], resource: str, action: str = "Pub", ip: str = "192.168.0.1"
) -> str | None:
    kind, _, name = resource.partition(":")
    found = deciding(entries, Need(kind, name, (action,)), address_of(ip))
    return None if found is None else found.decision


@pytest.mark.parametrize(
    ("resource", "covered", "others"),
    [
        ("*", ["Topic:a", "Group:a", "Cluster:c"], []),
        ("Topic:*", ["Topic:a", "Topic:"], ["Group:a"]),
        ("topic:or*", ["Topic:or", "Topic:orders"], ["Topic:o", "Group:orders"]),
        ("Group:g", ["Group:g"], ["Group:g1", "Group:G", "Topic:g"]),
        ("Topic:%DLQ%g", ["Topic:%DLQ%g"], ["Topic:g"]),
    ],
)
def test_a_resource_covers_a_name_a_prefix_a_kind_or_all(
    resource: str, covered: list[str], others: list[str]
) -> None:
    found = resource_of(resource)
    for each in covered + others:
        kind, _, name = each.partition(":")
        assert found.covers(kind, name) is (each in covered), each


@pytest.mark.parametrize("text", ["*", "Topic:*", "Topic:a*", "Group:a", "Cluster:c", "Topic:a:b"])
def test_a_resource_is_written_as_it_was_read(text: str) -> None:
    assert resource_of(text).key == text


def test_any_spelt_out_is_everything() -> None:
    assert resource_of("Any:*") == resource_of("any:*") == resource_of("*")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "**",
        "Topic",
        "Topic:",
        ":a",
        "Any:a",
        "Unknown:a",
        "Queue:a",
        "Topic:a*b",
        "Topic:**",
        "Topic:a**",
        "Topic:a\nb",
        "Topic:" + "a" * (NAME_CHARS_MAX + 1),
    ],
)
def test_a_malformed_resource_is_refused(text: str | None) -> None:
    with pytest.raises(Refusal, match=r"the resource"):
        resource_of(text)


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (PolicyEntryInfo("Topic:a", None, None, "Allow"), "has 0 actions"),
        (PolicyEntryInfo("Topic:a", [], None, "Allow"), "has 0 actions"),
        (PolicyEntryInfo("Topic:a", ["Pub"] * (ACTIONS_MAX + 1), None, "Allow"), "has 33 actions"),
        (PolicyEntryInfo("Topic:a", ["Any"], None, "Allow"), "the action 'Any' is none"),
        (PolicyEntryInfo("Topic:a", ["Publish"], None, "Allow"), "the action 'Publish' is none"),
        (PolicyEntryInfo("Topic:a", ["Pub"], None, None), "the decision '' is none"),
        (PolicyEntryInfo("Topic:a", ["Pub"], None, "Maybe"), "the decision 'Maybe' is none"),
        (PolicyEntryInfo("Topic:a", ["Pub"], ["host"], "Deny"), "the source ip 'host' is none"),
        (PolicyEntryInfo("Topic:a", ["Pub"], ["1.2.3.4/33"], "Deny"), "source ip '1.2.3.4/33'"),
        (PolicyEntryInfo("Topic:a", ["Pub"], ["1.2.3.0/255.255.255.0"], "Deny"), "the source ip"),
        (PolicyEntryInfo("Topic:a", ["Pub"], ["1.2.3.4"] * (SOURCES_MAX + 1), "Deny"), "limit is"),
    ],
)
def test_a_malformed_entry_is_refused_with_what_is_wrong(info: PolicyEntryInfo, why: str) -> None:
    with pytest.raises(Refusal, match=why.replace("(", r"\(")):
        entry_of(info)


def test_words_are_read_in_any_case_and_kept_as_rocketmq_writes_them() -> None:
    info = PolicyEntryInfo("topic:a", ["pub", "SUB", "Pub"], None, "dENY")
    assert entry_of(info).to_info() == PolicyEntryInfo("Topic:a", ["Pub", "Sub"], None, "Deny")


def test_an_entry_says_nothing_about_other_actions() -> None:
    assert decided([entry("Topic:a", "Sub,Get")], "Topic:a", "Pub") is None
    assert decided([entry("Topic:a", "All", "Deny")], "Topic:a", "Pub") == "Deny"


def test_one_of_the_actions_that_a_request_may_do_is_enough() -> None:
    found = deciding([entry("Topic:a", "Get")], Need("Topic", "a", ("Sub", "Get")), None)
    assert found is not None


@pytest.mark.parametrize(
    ("ips", "ip", "fits"),
    [
        ((), "192.168.0.1", True),
        (("192.168.0.0/24",), "192.168.0.77", True),
        (("192.168.0.9/24",), "192.168.0.77", True),  # as Java masks what is behind the prefix
        (("192.168.0.0/24",), "192.168.1.1", False),
        (("10.0.0.1", "10.0.0.2"), "10.0.0.2", True),
        (("10.0.0.1",), "10.0.0.11", False),
        (("2001:db8::/32",), "2001:db8::1", True),
        (("2001:db8::/32",), "10.0.0.1", False),
        (("10.0.0.0/8",), "::ffff:10.0.0.1", True),
        (("fe80::/10",), "fe80::1%eth0", True),
        (("10.0.0.0/8",), "", False),
    ],
)
def test_an_entry_may_be_about_some_networks_alone(
    ips: tuple[str, ...], ip: str, fits: bool
) -> None:
    found = decided([entry("Topic:a", "Pub", "Allow", *ips)], "Topic:a", ip=ip)
    assert (found == "Allow") is fits


def test_the_most_particular_entry_decides_whatever_the_order() -> None:
    # The story of RocketMQ's own test, AuthorizationEvaluatorTest.evaluate5.
    network = "192.168.0.0/24"
    entries = [
        entry("*", "Pub,Sub", "Allow", network),
        entry("Topic:*", "Pub,Sub", "Deny", network),
        entry("Topic:test*", "Pub,Sub", "Allow", network),
        entry("Topic:test-1", "Pub,Sub", "Deny", network),
    ]
    for order in (entries, entries[::-1], entries[2:] + entries[:2]):
        assert decided(order, "Topic:test-1") == "Deny"
        assert decided(order, "Topic:test-2") == "Allow"
        assert decided(order, "Topic:abc") == "Deny"
        assert decided(order, "Group:test-2", "Sub") == "Allow"
        assert decided(order, "Topic:test-2", ip="10.0.0.1") is None


def test_a_longer_prefix_decides_before_a_shorter_one() -> None:
    entries = [entry("Topic:a*", "All", "Allow"), entry("Topic:ab*", "All", "Deny")]
    assert decided(entries, "Topic:abc") == decided(entries[::-1], "Topic:abc") == "Deny"
    assert decided(entries, "Topic:acb") == "Allow"
