"""Tables on S3: add, run and verify as a user does, with the secrets in the environment."""

import time
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("pyiceberg")

import yaml
from aerobee.client.blocking import Admin, Message, Producer
from aerobee.lake import sweep
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.compaction import DAY_MS
from aerobee.lake.materializer import Materializer
from aerobee.lake.sweep import Swept
from aerobee.lake.upkeep import Upkeep
from aerobee.testing.cluster import LocalCluster

from ..s3_server import s3_server
from ..scripts.command import aerobee, printed
from ..waiting import LONG
from .memory_log import MemoryLog
from .tables import contents

SECRETS = {
    "PYICEBERG_CATALOG__AEROBEE__S3__ACCESS_KEY_ID": "any",
    "PYICEBERG_CATALOG__AEROBEE__S3__SECRET_ACCESS_KEY": "any-secret",
    "PYICEBERG_CATALOG__AEROBEE__S3__REGION": "us-east-1",
}


def test_a_lake_on_s3_keeps_its_tables_there_and_its_catalog_beside_the_settings(
    tmp_path: Path,
) -> None:
    with s3_server(tmp_path) as url, LocalCluster() as cluster:

        def lake(*words: str) -> str:
            where = ("--config", str(tmp_path / "lake.yaml"), "-n", cluster.name_server)
            return printed(aerobee("lake", *words, *where, env=SECRETS))

        with Admin(cluster.name_server) as admin:
            admin.create_topic("orders")  # returns when the name server knows it

        def send(count: int) -> None:
            with Producer(cluster.name_server) as producer:
                for number in range(count):
                    producer.send(Message("orders", str(number).encode()))

        send(10)
        place = ("--to", "s3://bucket/lake/", "--property", f"s3.endpoint={url}")
        assert lake("add", "orders", *place).startswith(
            "topic orders goes to table rocketmq.orders at s3://bucket/lake/rocketmq/orders; copy"
        )
        said = yaml.safe_load((tmp_path / "lake.yaml").read_text())
        assert said["place"] == "s3://bucket/lake"
        assert said["catalog"] == {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/lake.db",
            "s3.endpoint": url,
        }
        assert lake("run", "--once") == "orders: 10 rows\n"
        send(3)
        assert lake("run", "--once") == "orders: 3 rows\n"
        assert lake("verify", "orders").endswith("the table and the log are the same: 13 rows\n")
        days = "lake/rocketmq/orders/data/timestamp_day="
        with urlopen(f"{url}/bucket?prefix={days}", timeout=LONG) as answer:
            assert answer.read().count(b".parquet</Key>") >= 2


def test_upkeep_lists_and_deletes_what_lies_on_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path) as url:
        given = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "s3.endpoint": url,
            "s3.access-key-id": "any",
            "s3.secret-access-key": "any-secret",
            "s3.region": "us-east-1",
        }
        catalog = LakeCatalog(given, place="s3://bucket/lake", namespace="rocketmq")
        catalog.create("orders", "orders")
        source = MemoryLog()
        copier = Materializer(catalog, source, "orders", "orders")
        for _ in range(3):
            source.send(5)
            copier.copy()
        upkeep = Upkeep(catalog, "orders", "orders")
        table = catalog.load("orders", "orders")
        orphan = "data/timestamp_day=2026-01-01/0b0e7d3c-8a55-4c59-b6a5-0d5d4f4e6a01-0.parquet"
        with table.io.new_output(f"{table.location()}/{orphan}").create() as stream:
            stream.write(b"never committed")
        # The store has times of its own: all its files are of this moment.
        now_ms = int(time.time() * 1000)
        assert upkeep.compact(now_ms=now_ms).before == 3
        assert upkeep.expire(1, now_ms=now_ms) == 3
        noted = upkeep.sweep(now_ms=now_ms).noted
        assert noted >= 1 + 3
        assert upkeep.sweep(now_ms=now_ms + 2 * DAY_MS).deleted == ()  # none is a day old there
        listed = sweep._stored
        monkeypatch.setattr(
            sweep,
            "_stored",
            lambda *where: (
                replace(each, changed_ms=each.changed_ms - 3 * DAY_MS * (each.path != sweep.NOTES))
                for each in listed(*where)
            ),
        )
        deleted = upkeep.sweep(now_ms=now_ms + 2 * DAY_MS).deleted
        assert orphan in deleted
        assert len(deleted) == noted
        assert upkeep.sweep(now_ms=now_ms + 9 * DAY_MS) == Swept()
        assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_a_bucket_that_is_not_there_is_said(tmp_path: Path) -> None:
    with s3_server(tmp_path) as url, LocalCluster() as cluster:
        with Admin(cluster.name_server) as admin:
            admin.create_topic("orders")
        words = ("add", "orders", "--to", "s3://none/lake", "--property", f"s3.endpoint={url}")
        where = ("--config", str(tmp_path / "lake.yaml"), "-n", cluster.name_server)
        done = aerobee("lake", *words, *where, env=SECRETS)
    assert done.returncode == 1
    assert done.stderr.startswith("aerobee lake: could not make the table rocketmq.orders: ")
    assert "bucket" in done.stderr
    assert not (tmp_path / "lake.yaml").exists()
