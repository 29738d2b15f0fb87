"""The export of a search: streamed, audited, refused with its reason."""

import csv
import io
import json
from collections.abc import Iterator

import pytest
from aerobee.client.blocking import Admin, Message, Producer
from aerobee.testing import LocalCluster

from .site import Site


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        with Admin(cluster.name_server) as admin:
            admin.create_topic("orders", queues=2)
        with Producer(cluster.name_server, group="till") as producer:
            for n in range(30):
                producer.send(Message("orders", b'{"n": %d}' % n, keys=[f"=k{n}"]))
        yield cluster


async def test_a_search_is_exported_and_audited(site: Site) -> None:
    query = {"topic": "orders", "where": "body.n >= 10"}
    for path in ("search/export", "api/search/export"):
        status, text, headers = await site.get(path, **query)
        assert status == 200
        assert headers["Content-Disposition"] == 'attachment; filename="messages.jsonl"'
        assert headers["Content-Type"].startswith("application/x-ndjson")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        *rows, end = [json.loads(line) for line in text.splitlines()]
        assert {json.loads(row["body"])["n"] for row in rows} == set(range(10, 30))
        assert {row["broker"] for row in rows} == {"broker-a"}
        told = end["end"]
        assert (told["scanned"], told["found"], told["left"], told["why"]) == (30, 20, 0, None)
    last, first = site.audit.last(2)
    assert (first["action"], first["target"]) == ("search-export", "orders")
    assert first["details"]["where"] == "body.n >= 10"
    assert last["result"] == {"messages": 20, "not whole": None}
    status, text, _ = await site.get("search/export", format="csv", **query)
    table = list(csv.DictReader(io.StringIO(text)))
    assert len(table) == 20
    assert all(row["keys"].startswith("'=k") for row in table)


async def test_an_export_that_is_cut_says_so(site: Site) -> None:
    _, text, _ = await site.get("search/export", topic="orders", limit="4", format="csv")
    *rows, end = csv.reader(io.StringIO(text))
    assert len(rows) == 5
    assert end[0].startswith("not whole: 4 messages were found, the limit")
    page = await site.html("search", topic="orders", begin="1")
    assert "not whole" not in page
    assert "search/export?cluster=main&amp;topic=orders&amp;begin=1&amp;format=csv" in page


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ({"topic": "orders", "format": "xls"}, 400, "give one of jsonl, csv"),
        ({"topic": "orders", "where": "a ="}, 400, "wrong at character 4"),
        ({"topic": "orders", "limit": "100001"}, 400, "give 1 to 100000"),
        ({}, 400, "topic is missing"),
        ({"topic": "none"}, 404, "none"),
        ({"topic": "no name"}, 404, "topic no name is on no broker"),
    ],
)
async def test_an_export_that_can_not_be_is_refused(
    site: Site, query: dict[str, str], status: int, says: str
) -> None:
    found, text, _ = await site.get("api/search/export", **query)
    assert (found, says in json.loads(text)["error"]) == (status, True), text


async def test_the_audit_says_that_an_export_was_not_done_and_why(site: Site) -> None:
    assert (await site.get("api/search/export", topic="none", where="a = 1"))[0] == 404
    (act,) = [one["act"] for one in (await site.data("audit"))["list"]["rows"]]
    assert (act["ending"], act["details"]) == ("not done", {"where": "a = 1"})
    assert act["result"]["not done"].startswith("no name server knows topic none")
    assert (await site.get("search/export", topic="no name"))[0] == 404
    assert len(site.audit.last(10)) == 2


async def test_without_an_audit_nothing_is_exported(site: Site) -> None:
    site.audit.path.unlink(missing_ok=True)
    site.audit.path.mkdir()
    status, text, _ = await site.get("api/search/export", topic="orders")
    assert status == 503
    assert "the audit" in json.loads(text)["error"]
    site.audit.path.rmdir()
