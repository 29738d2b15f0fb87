"""The pages of brokers: what is not at its default first, and how chosen brokers differ."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aerobee.client import Admin
from aerobee.console.web.broker_settings import SETTINGS_MAX
from aerobee.console.web.pages_brokers import COMPARED_MAX
from aerobee.protocol import codes
from aerobee.protocol.bodies.cluster import ClusterInfo, KVTable
from aerobee.protocol.bodies.route import BrokerData
from aerobee.protocol.codec import java_properties
from aerobee.protocol.command import Command, Response
from aerobee.testing import LocalCluster

from ..fake_cluster import Shop
from .site import Parsed, Site

LONG = "long-" * 25 + "xy"  # 127 characters
AWAY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, fileReservedTime=48) as cluster:
        yield cluster


def tells(shop: Shop, settings: dict[str, str], version: str = "V5_3_3") -> None:
    """Make the broker one of RocketMQ with these settings."""
    body = java_properties.dump(settings).encode()
    shop.broker.answers[codes.GET_BROKER_CONFIG] = lambda *_: Response(body=body)
    table = KVTable(
        {
            "brokerVersionDesc": version,
            "bootTimestamp": "1790000000000",
            "msgPutTotalTodayNow": "12",
            "msgPutTotalTodayMorning": "5",
            "putLatency99": "1.25",
        }
    ).encode()
    shop.broker.answers[codes.GET_BROKER_RUNTIME_INFO] = lambda *_: Response(body=table)


def has_brokers(shop: Shop, addresses: dict[str, dict[int, str]]) -> None:
    """Make the name server tell these brokers."""
    table = {name: BrokerData("main", name, found) for name, found in addresses.items()}
    body = ClusterInfo(table, {"main": [*addresses]}).encode()
    shop.answers[codes.GET_BROKER_CLUSTER_INFO] = lambda *_: Response(body=body)


async def compared(site: Site, *keys: str, path: str = "brokers", **query: str) -> str:
    """The page, or with `api/brokers` its JSON, about these brokers."""
    params = [*query.items(), *(("compare", key) for key in keys)]
    async with site.session.get(site.console.url + path, params=params) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


async def data(site: Site, *keys: str, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await compared(site, *keys, path="api/brokers", **query))
    return found


def tables(text: str) -> list[str]:
    """The names in the first column of each table of settings."""
    return re.findall(r'data-label="(?:Name|Setting)"><span class="name[^"]*">([^<]+)', text)


# --- one broker -----------------------------------------------------------------------------------


async def test_what_is_changed_comes_first_with_its_default_and_the_rest_is_folded(
    site: Site,
) -> None:
    text = await site.html("broker", name="broker-a")
    settings = text.split("<h2>Settings</h2>")[1].split("<h2>")[0]
    first, *folds = settings.split('<details class="fold">')
    found = await site.data("broker", name="broker-a")
    changed = [one for one in found["settings"] if one["differs"]]
    assert {"fileReservedTime", "namesrvAddr"} <= {one["name"] for one in changed}
    assert set(tables(first)) == {one["name"] for one in changed}
    (kept,) = [one for one in changed if one["name"] == "fileReservedTime"]
    assert (kept["value"], kept["default"], kept["group"]) == ("48", "72", "Retention and disk")
    row = first.split("fileReservedTime")[1].split("</tr>")[0]
    assert re.findall(r'data-label="(\w+)">([^<]+)', row) == [("Value", "48"), ("Default", "72")]
    # Each other setting is in one fold, whose mark counts them.
    assert len(folds) > 8
    for fold in folds:
        count = re.search(r'class="badge ">(\d+)', fold)
        assert count is not None
        assert int(count[1]) == len(tables(fold)) > 0
    everything = [name for part in (first, *folds) for name in tables(part)]
    assert sorted(everything) == sorted(one["name"] for one in found["settings"])
    assert "of this machine" in folds[0]
    assert "brokerName" in tables(folds[0])


async def test_a_filter_searches_names_and_values_of_all_groups(site: Site) -> None:
    for sought, wanted in (
        ("FLUSHDISK", {"flushDiskType"}),
        ("ASYNC_FLUSH", {"flushDiskType"}),
        ("48", {"fileReservedTime"}),
    ):
        text = await site.html("broker", name="broker-a", **{"settings.q": sought})
        settings = text.split("<h2>Settings</h2>")[1].split("<h2>")[0]
        assert wanted <= set(tables(settings))
        assert ("changed" in settings) is ("fileReservedTime" in wanted)
        assert 'class="fold"' not in settings
        assert "Show in groups" in settings
    text = await site.html("broker", name="broker-a", **{"report.q": "bootTime"})
    settings, report = text.split("<h2>Settings</h2>")[1].split("<h2>")
    assert tables(report) == ["bootTimestamp"]
    assert 'class="fold"' in settings


async def test_a_broker_of_rocketmq_is_compared_with_its_own_defaults(shop: Shop) -> None:
    big = "v" * 4_096
    settings = {
        "fileReservedTime": "48",
        "timerMaxDelaySec": "259200",
        "messageStorePlugIn": big,
        "brokerName": "orders",
        "sendMessageThreadPoolNums": "16",
        "storePathRootDir": "/data",
        "newInLater": "1",
        "initAuthenticationUser": '{"username":"root","password":"letmein"}',
        "empty": "",
    }
    tells(shop, settings)
    async with Site({"main": shop.address}) as site:
        found = await site.data("broker", name="orders")
        about = {one["name"]: one for one in found["settings"]}
        differs = {name: one["differs"] for name, one in about.items()}
        assert differs == {
            "fileReservedTime": True,
            "timerMaxDelaySec": False,
            "messageStorePlugIn": True,
            "brokerName": None,
            "sendMessageThreadPoolNums": None,
            "storePathRootDir": None,
            "newInLater": None,
            "initAuthenticationUser": True,
            "empty": None,
        }
        assert about["messageStorePlugIn"]["value"] == big
        assert "letmein" not in json.dumps(found)
        assert about["initAuthenticationUser"]["value"].startswith("(secret, mark ")
        assert found["figures"] == {
            "started_ms": 1_790_000_000_000,
            "stored_today": 7,
            "put_ms": 1.25,
        }
        text = Parsed(await site.html("broker", name="orders")).text
        assert "Changed from the defaults of RocketMQ 5.3.3: 3." in text
        assert "another version" not in text
        assert "1.25 ms" in text


async def test_a_broker_of_another_version_says_whose_the_defaults_are(shop: Shop) -> None:
    tells(shop, {"fileReservedTime": "72", "aclPlugin": "x"}, "V4_9_8")
    async with Site({"main": shop.address}) as site:
        found = await site.data("broker", name="orders")
        assert (found["defaults_of"], found["is_its_version"]) == ("RocketMQ 5.3.3", False)
        text = Parsed(await site.html("broker", name="orders")).text
        assert "Changed from the defaults of RocketMQ 5.3.3: 0. The broker has another" in text
        row = (await site.html("broker", name="orders")).split("aclPlugin")[1].split("</tr>")[0]
        assert "not known" in row


@pytest.mark.parametrize("body", [b"key=\\u12", b"\xff\xfe=1"])
async def test_settings_that_can_not_be_read_are_a_fault_and_not_none(
    shop: Shop, body: bytes
) -> None:
    shop.broker.answers[codes.GET_BROKER_CONFIG] = lambda *_: Response(body=body)
    async with Site({"main": shop.address}) as site:
        text = Parsed(await site.html("broker", name="orders")).text
        assert f"the settings of {shop.broker.address} can't be read" in text
        assert "not known" in text.split("Settings")[1]
        assert (await site.data("brokers"))["compared"][0]["is_told"] is False


async def test_very_many_settings_are_cut_and_said(shop: Shop) -> None:
    tells(shop, {f"key{n}": "1" for n in range(SETTINGS_MAX + 5)})
    async with Site({"main": shop.address}) as site:
        found = await site.data("broker", name="orders")
        assert len(found["settings"]) == SETTINGS_MAX
        assert found["settings_cut"] == "the first 2,000 of 2,005"
        text = Parsed(await site.html("broker", name="orders")).text
        assert "Cut: the first 2,000 of 2,005." in text


async def test_very_many_settings_that_differ_are_cut_and_said(shop: Shop) -> None:
    def settings(command: Command, _: object) -> Response:
        number = next(numbers)
        lines = (f"key{n}={number}\n" for n in range(SETTINGS_MAX + 5))
        return Response(body="".join(lines).encode())

    numbers = iter(range(9))
    tells(shop, {})
    shop.broker.answers[codes.GET_BROKER_CONFIG] = settings
    has_brokers(shop, {name: {0: shop.broker.address} for name in ("a", "b")})
    async with Site({"main": shop.address}) as site:
        text = await site.html("brokers")
        assert "Cut: the first 2,000 of 2,005." in Parsed(text).text
        assert len(tables(text)) == SETTINGS_MAX


# --- some brokers beside each other ---------------------------------------------------------------


async def test_chosen_brokers_are_compared_and_what_is_of_the_machine_is_apart(
    cluster: LocalCluster, site: Site
) -> None:
    async with Admin(cluster.name_server) as admin:
        address = f"127.0.0.1:{cluster.brokers[1].port}"
        await admin.update_broker_config(address, {"fileReservedTime": 12})
    try:
        found = await data(site)
        assert [one["key"] for one in found["compared"]] == ["broker-a:0", "broker-b:0"]
        (row,) = [one for one in found["differing"] if not one["is_of_machine"]]
        assert row == {
            "name": "fileReservedTime",
            "values": {"broker-a:0": "48", "broker-b:0": "12"},
            "defaults": ["72"],
            "is_of_machine": False,
        }
        own = {one["name"] for one in found["differing"] if one["is_of_machine"]}
        assert {"brokerName", "storePathRootDir"} <= own
        first, fold = (await site.html("brokers")).split('<details class="fold">')
        assert tables(first) == ["fileReservedTime"]
        cells = re.findall(r'data-label="([\w-]+)">(\w+)', first.split("fileReservedTime")[1])
        assert cells[:3] == [("Default", "72"), ("broker-a", "48"), ("broker-b", "12")]
        assert set(tables(fold)) == own
        only = await data(site, q="RESERVED")
        assert [one["name"] for one in only["differing"]] == ["fileReservedTime"]
        # The text is sought in values too, and then the fold is open.
        text = await compared(site, "broker-b:0", "broker-a:0", q="broker-b")
        assert "brokerName" in tables(text.split('<details class="fold" open>')[1])
    finally:
        async with Admin(cluster.name_server) as admin:
            await admin.update_broker_config(address, {"fileReservedTime": 48})


async def test_one_broker_or_the_same_twice_is_not_compared(site: Site) -> None:
    for keys in (("broker-a:0",), ("broker-a:0", "broker-a:0")):
        found = await data(site, *keys)
        assert [one["key"] for one in found["compared"]] == ["broker-a:0"]
        assert found["differing"] == []
        text = await compared(site, *keys)
        assert "Choose two brokers or more." in text
        ticked = [
            attrs["value"]
            for tag, attrs in Parsed(text).elements
            if attrs.get("type") == "checkbox" and "checked" in attrs
        ]
        assert ticked == ["broker-a:0"]


async def test_a_broker_that_is_not_there_is_said_and_the_others_are_compared(site: Site) -> None:
    keys = ("broker-a:0", "broker-b:0", "gone:0", "broker-a:7", f"{'n' * 127}:0")
    found = await data(site, *keys)
    assert [one["key"] for one in found["compared"]] == ["broker-a:0", "broker-b:0"]
    assert [one.split(" is known")[0] for one in found["faults"]] == [
        "no broker gone with id 0",
        "no broker broker-a with id 7",
        f"no broker {'n' * 127} with id 0",
    ]
    assert "no broker gone with id 0 is known" in Parsed(await compared(site, *keys)).text


@pytest.mark.parametrize(
    "wrong", ["broker-a", ":0", "broker-a:", "broker-a:x", "b:-1", "b:" + "9" * 30]
)
async def test_a_broker_without_an_id_is_refused(site: Site, wrong: str) -> None:
    status, text, _ = await site.get("brokers", compare=wrong)
    assert status == 400
    assert "such as broker-a:0" in text


async def test_slaves_are_compared_and_a_broker_that_is_away_is_not_known(shop: Shop) -> None:
    def settings(command: Command, _: object) -> Response:
        body = f"fileReservedTime={next(hours)}\nhttpToken=secret-{next(marks)}\n"
        return Response(body=body.encode())

    hours, marks = iter((48, 72)), iter("ab")
    tells(shop, {})
    shop.broker.answers[codes.GET_BROKER_CONFIG] = settings
    has_brokers(shop, {LONG: {0: shop.broker.address, 1: shop.broker.address, 2: AWAY}})
    keys = (f"{LONG}:0", f"{LONG}:1", f"{LONG}:2")
    async with Site({"main": shop.address}) as site:
        text = await compared(site, *keys)
        rows = text.split("Settings in which they differ")[1]
        assert tables(rows) == ["fileReservedTime", "httpToken"]
        first, second = rows.split("</tr>")[1:3]
        cells = re.findall(r'data-label="([^"]+)">(?:<span class="unknown">)?([^<]+)', first)
        assert {key: value.strip() for key, value in cells if key.startswith("long")} in (
            {LONG: "48", f"{LONG}:1": "72", f"{LONG}:2": "not known"},
            {LONG: "72", f"{LONG}:1": "48", f"{LONG}:2": "not known"},
        )
        assert "secret-" not in second
        assert second.count("(secret, mark ") == 2
        assert AWAY in Parsed(text).text  # the mark of the broker that is away


async def test_more_brokers_than_the_limit_are_cut_and_said(shop: Shop) -> None:
    tells(shop, {"fileReservedTime": "48"})
    names = [f"broker-{n:02}" for n in range(COMPARED_MAX + 2)]
    has_brokers(shop, {name: {0: shop.broker.address} for name in names})
    async with Site({"main": shop.address}) as site:
        for keys in ((), [f"{name}:0" for name in names]):
            found = await data(site, *keys)
            assert [one["broker"]["name"] for one in found["compared"]] == names[:COMPARED_MAX]
            assert found["cut"] == "the first 10 of 12"
            assert "Cut: the first 10 of 12." in Parsed(await compared(site, *keys)).text
            assert (found["differing"], found["faults"]) == ([], [])


@pytest.mark.parametrize(
    ("permission", "offered"),
    [("6", {"broker-wipe"}), ("4", {"broker-write"}), (None, {"broker-wipe", "broker-write"})],
)
async def test_only_the_permission_that_a_broker_has_can_be_taken(
    shop: Shop, permission: str | None, offered: set[str]
) -> None:
    tells(shop, {} if permission is None else {"brokerPermission": permission})
    async with Site({"main": shop.address}) as site:
        page = Parsed(await site.html("broker", name="orders"))
    links = [attrs.get("href") or "" for tag, attrs in page.elements if tag == "a"]
    assert {name for name in ("broker-wipe", "broker-write") for one in links if name in one} == (
        offered
    )
