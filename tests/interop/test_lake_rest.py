"""The Iceberg project's REST catalog has our tables: it sees each commit once, whoever is killed,
and refuses the second of two."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.blocking import Admin, Message, Producer
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.commits import Conflict
from aerobee.lake.compaction import DAY_MS
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.upkeep import Upkeep
from aerobee.testing.cluster import LocalCluster
from pyiceberg.table import Table

from ..lake.memory_log import MemoryLog
from ..lake.tables import contents
from ..s3_server import s3_server
from ..scripts.command import aerobee, printed, refused
from .iceberg_rest import IcebergRest

pytestmark = pytest.mark.java

SECRETS = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any-secret",
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def rest(tmp_path: Path, s3: str) -> Iterator[IcebergRest]:
    found = IcebergRest(tmp_path, s3)
    found.start()
    yield found
    found.kill()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{request.node.name}"


class Opened:
    """A catalog with the table of orders in it, as one process of a lake has it."""

    def __init__(self, rest: IcebergRest, s3: str, place: str) -> None:
        given = {
            "type": "rest",
            "uri": rest.url,
            "s3.endpoint": s3,
            "s3.access-key-id": "any",
            "s3.secret-access-key": "any-secret",
            "s3.region": "us-east-1",
        }
        self.catalog = LakeCatalog(given, place=place, namespace="shop.raw")
        self.catalog.create("orders", "orders")

    def table(self) -> Table:
        return self.catalog.load("orders", "orders")

    def writer(self, source: MemoryLog) -> Materializer:
        return Materializer(self.catalog, source, "orders", "orders")


def test_a_topic_is_added_copied_asked_and_verified_beside_kills_of_the_catalog(
    rest: IcebergRest, s3: str, place: str, tmp_path: Path
) -> None:
    with LocalCluster() as cluster:
        of = ("--config", str(tmp_path / "lake.yaml"), "-n", cluster.name_server)

        def lake(*words: str) -> str:
            return printed(aerobee("lake", *words, *of, env=SECRETS))

        def send(count: int) -> None:
            with Producer(cluster.name_server) as producer:
                for number in range(count):
                    producer.send(Message("orders", str(number).encode()))

        with Admin(cluster.name_server) as admin:
            admin.create_topic("orders")  # returns when the name server knows it
        send(10)
        servers = ("--property", f"s3.endpoint={s3}", "--property", "s3.region=us-east-1")
        where = ("--to", place, "--catalog", rest.url, "--namespace", "shop.raw")
        said = lake("add", "orders", *where, *servers)
        assert said.startswith(
            f"topic orders goes to table shop.raw.orders at {place}/shop/raw/orders; copy"
        )
        assert lake("run", "--once") == "orders: 10 rows\n"
        rest.kill()
        failure = refused("lake", "run", "--once", *of, env=SECRETS)
        assert f"could not open the catalog aerobee ({rest.url}): ConnectionError" in failure
        rest.start()
        send(5)
        asked = ("sql", "select count(*) as n from orders", "--format", "csv")
        assert printed(aerobee(*asked, *of, env=SECRETS)).split() == ["n", "15"]
        assert lake("run", "--once") == "orders: 5 rows\n"
        assert lake("verify", "orders").endswith("the table and the log are the same: 15 rows\n")
        assert lake("expire", "orders", "--keep", "1") == "orders: 1 snapshot dropped\n"
        assert lake("sweep", "orders").startswith("orders: 0 files (0 bytes) deleted; ")
        assert lake("verify", "orders").endswith("the table and the log are the same: 15 rows\n")


def test_the_second_of_two_commits_to_one_state_is_a_conflict(
    rest: IcebergRest, s3: str, place: str
) -> None:
    source = MemoryLog()
    source.send(10)
    first, late = Opened(rest, s3, place), Opened(rest, s3, place)
    copier = late.writer(source)
    load = copier._load

    def overtaken() -> Table:
        found = load()
        assert first.writer(source).copy().rows == 10
        return found

    copier._load = overtaken  # type: ignore[method-assign]
    with pytest.raises(Conflict, match=r"another writer was first at table shop\.raw\.orders"):
        copier.copy()
    copier._load = load  # type: ignore[method-assign]
    source.send(5)
    assert copier.copy().rows == 5
    assert contents(first.table()) == source.ledger()


@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
def test_a_catalog_that_is_killed_in_a_commit_loses_and_doubles_nothing(
    rest: IcebergRest, s3: str, place: str, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    source = MemoryLog()
    source.send(10)
    opened = Opened(rest, s3, place)
    copier = opened.writer(source)
    assert copier.copy().rows == 10
    source.send(3)
    inside = opened.catalog._catalog
    commit = inside.commit_table

    def killed(*asked: object) -> object:
        made = commit(*asked) if is_made else None  # type: ignore[arg-type]
        rest.kill()
        if is_made:
            raise ConnectionError(f"the answer is lost: {made}")
        return commit(*asked)  # type: ignore[arg-type]

    with monkeypatch.context() as changed:
        changed.setattr(inside, "commit_table", killed)
        with pytest.raises(LakeError, match="did not confirm a commit"):
            copier.copy()
    rest.start()
    source.send(2)
    assert copier.copy().rows == (2 if is_made else 5)
    assert contents(opened.table()) == source.ledger()


def test_days_are_compacted_and_snapshots_dropped_beside_a_writer(
    rest: IcebergRest, s3: str, place: str
) -> None:
    source = MemoryLog()
    opened, other = Opened(rest, s3, place), Opened(rest, s3, place)
    for _ in range(3):
        source.send(5)
        assert other.writer(source).copy().rows == 5
    now_ms = int(time.time() * 1000)
    upkeep = Upkeep(opened.catalog, "orders", "orders")
    done = upkeep.compact(now_ms=now_ms + 2 * DAY_MS)
    assert (done.before, done.after) == (3, 1)
    source.send(4)
    assert other.writer(source).copy().rows == 4
    assert upkeep.expire(1, now_ms=now_ms) == 4
    assert len(opened.table().metadata.snapshots) == 1
    assert contents(other.table()) == source.ledger()
