"""Tables on S3: add, run and verify as a user does, with the secrets in the environment."""

from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("pyiceberg")

import yaml
from aerobee.client.blocking import Admin, Message, Producer
from aerobee.testing.cluster import LocalCluster

from ..s3_server import s3_server
from ..scripts.command import aerobee, printed
from ..waiting import LONG

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
        with urlopen(f"{url}/bucket?prefix=lake/rocketmq/orders/data/day=", timeout=LONG) as answer:
            assert answer.read().count(b".parquet</Key>") >= 2


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
